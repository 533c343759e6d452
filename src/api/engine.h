// Chooses the back ends: device, kernels, ranks and threads of this process. The only place that
// does.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "comm/mpi/job_record.h"
#include "comm/rendezvous/meeting_place.h"
#include "session/machine.h"
#include "train/run/run_planner.h"

namespace piton {

struct EngineOptions {
  std::string kernels = "cpu";  // reference, cpu, cuda, or auto (api/automatic_kernels.h)
  std::string isa;        // instruction set to use ("x86-64-v3"); empty: the best of this processor
  int threads = 0;        // 0: all cores of this process, divided among the ranks of the host
  bool launched = false;  // started by mpirun: MPI joins ranks of processors, if it is built
  LaunchedJob job;        // the launcher's job, if known
  // Where ranks meet without MPI: those that have a GPU each, whoever started them, and those of
  // processors that mpirun has not started. Empty: one process, or mpirun's.
  std::optional<MeetingPlace> meeting;
  double timeout_seconds = 600;
};

class Engine {
 public:
  // Collective over all ranks of an mpirun or of `meeting`. Throws
  // Error(kUsage) for kernels that this build lacks, for cuda without a GPU for this rank, and for
  // cuda under mpirun without `meeting`.
  Engine(const EngineOptions& options, Log& log);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Machine& machine();
  // For trainers on this machine.
  RunPlanner& planner();
  World& world();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// True if this build has `kernels`, and this machine a processor for them. Libraries that they load
// may be missing.
bool has_kernels(const std::string& kernels);

}  // namespace piton
