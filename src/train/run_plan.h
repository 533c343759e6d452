// The sizes of a run, derived from its options and checked before any memory is allocated.
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
  int micro_batches = 0;         // of each data-parallel rank in one step
  SessionSettings session;
};

// `tokenizer_vocabulary`: ids of the tokenizer, 0 if there is none. Throws Error(kUsage) with the
// flag.
RunPlan make_run_plan(const PretrainOptions& options, int ranks, std::int64_t tokenizer_vocabulary);

// The options with every derived default replaced by its value. They are stored with a checkpoint
// and compared on resume, because the same flags could give other values with another number of
// ranks or in another version.
PretrainOptions settled_options(const PretrainOptions& options, const RunPlan& plan);

}  // namespace piton
