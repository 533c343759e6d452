// Makes the faults of --fault happen on this rank.
#pragma once

#include <memory>
#include <vector>

#include "comm/faulty_world.h"
#include "kernels/measured/faulty_kernels.h"
#include "session/fault_options.h"
#include "session/machine.h"

namespace piton {

class RunFaults {
 public:
  // Null if there are none. Throws Error(kUsage) for what is no fault, or is on a rank or of a kind
  // of collective that the run does not have. `machine` must outlive it.
  static std::unique_ptr<RunFaults> make(const FaultOptions& options, const Machine& machine);

  // The machine with the world and the kernels in which faults happen.
  Machine faulty(const Machine& machine) { return machine.with(world_, kernels_); }

  // `step`: the iteration that begins, from 1. May not return.
  void before_step(std::int64_t step);
  // Throws Error(kUsage), on all ranks, for a collective to leave out that the step did not have.
  void after_step(std::int64_t step, Communicator& everyone);

 private:
  RunFaults(std::vector<PlannedFault> faults, const Machine& machine);
  void happen(const PlannedFault& fault);

  std::vector<PlannedFault> faults_;
  FaultyWorld world_;
  FaultyKernels kernels_;
};

}  // namespace piton
