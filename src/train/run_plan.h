// The sizes of a run that follow from its options, checked before any memory is taken.
#pragma once

#include <cstdint>

#include "train/pretrain_options.h"
#include "train/session.h"

namespace piton {

struct RunPlan {
  MeshSizes mesh;
  std::int64_t sequence = 0;
  std::int64_t global_batch = 0;
  std::int64_t train_iters = 0;  // updates of the whole run
  int micro_batches = 0;         // a step, of each data-parallel rank
  SessionSettings session;
};

// `tokenizer_vocabulary`: 0 where there is no tokenizer. Throws Error(kUsage) naming the flag.
RunPlan make_run_plan(const PretrainOptions& options, int ranks, std::int64_t tokenizer_vocabulary);

// The options with every derived default replaced by the value that it came to: what is stored
// beside a checkpoint, and compared on resume. A run with the same flags on other ranks, or of
// another version, would come to other values.
PretrainOptions settled_options(const PretrainOptions& options, const RunPlan& plan);

}  // namespace piton
