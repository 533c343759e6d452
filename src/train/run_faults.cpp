#include "train/run_faults.h"

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/gathered_values.h"

namespace piton {

std::unique_ptr<RunFaults> RunFaults::make(const FaultOptions& options, const Machine& machine) {
  std::vector<PlannedFault> faults = options.planned();
  if (faults.empty()) return nullptr;
  for (const PlannedFault& fault : faults) {
    if (fault.rank >= machine.world.size()) {
      throw Error(Fault::kUsage, "--fault: got rank {}, the run has ranks 0 to {}", fault.rank,
                  machine.world.size() - 1);
    }
  }
  return std::unique_ptr<RunFaults>(new RunFaults(std::move(faults), machine));
}

RunFaults::RunFaults(std::vector<PlannedFault> faults, const Machine& machine)
    : faults_(std::move(faults)),
      world_(machine.world, machine.device),
      kernels_(machine.kernels, machine.device) {}

void RunFaults::before_step(std::int64_t step) {
  std::vector<CollectiveName> dropped;
  for (const PlannedFault& fault : faults_) {
    if (fault.step != step) continue;
    if (fault.kind == FaultKind::kDrop) {
      dropped.push_back(fault.collective);
    } else if (fault.rank == world_.rank()) {
      happen(fault);
    }
  }
  world_.begin_step(std::move(dropped));
}

void RunFaults::happen(const PlannedFault& fault) {
  switch (fault.kind) {
    case FaultKind::kKill:
      std::raise(SIGKILL);
      return;
    case FaultKind::kStop:
      std::raise(SIGSTOP);
      return;
    case FaultKind::kDelay:
      std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
      return;
    case FaultKind::kNan:
      kernels_.spoil_next_gradient();
      return;
    case FaultKind::kWrite: {
      rlimit limit{};
      ::getrlimit(RLIMIT_FSIZE, &limit);
      limit.rlim_cur = 0;
      ::setrlimit(RLIMIT_FSIZE, &limit);
      return;
    }
    case FaultKind::kDrop:
      return;
  }
}

void RunFaults::after_step(std::int64_t step, Communicator& everyone) {
  for (const PlannedFault& fault : faults_) {
    if (fault.kind != FaultKind::kDrop || fault.step != step) continue;
    std::int64_t left_out = 0;
    for (const std::int64_t its : gathered_values(everyone, world_.left_out())) left_out += its;
    if (left_out > 0) return;
    throw Error(Fault::kUsage, "--fault: step {} has no {}", step, to_string(fault.collective));
  }
}

}  // namespace piton
