// --rollback-on-divergence: a run that has diverged continues from the weights of a checkpoint in
// --save, and the samples that it has read since are passed over. Source: PaLM (Chowdhery et al.
// 2022, arXiv:2204.02311, section 5.1).
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "comm/communicator.h"
#include "train/run/pretrain_options.h"
#include "train/run/run_checkpoints.h"

namespace piton {

class Rollback {
 public:
  // All arguments must outlive it.
  Rollback(const LoopOptions& loop, RunCheckpoints& checkpoints, Communicator& everyone, Log& log)
      : loop_(loop), checkpoints_(checkpoints), everyone_(everyone), log_(log) {}

  // Collective; no save may be in the background. `state` is that of a run that ends with
  // `diverged`; `bad_steps`: the last ones, whose weights are not to be taken. Weights and
  // optimizer become those of the newest checkpoint before them, at the iteration of `state`. How
  // often this was done is a fact of the state. Throws Error(kDiverged), the same with a reason, if
  // --rollback-on-divergence does not allow it again, or if there is no such checkpoint.
  void undo(const Error& diverged, std::int64_t bad_steps, TrainState& state);

 private:
  const LoopOptions& loop_;
  RunCheckpoints& checkpoints_;
  Communicator& everyone_;
  Log& log_;
};

}  // namespace piton
