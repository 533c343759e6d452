// What `piton bench` measures where the user leaves it open, and of a recipe for a whole run.
#pragma once

#include "model/config.h"
#include "train/run/pretrain_options.h"

namespace piton::cli {

// GPT-2 124M if none is named, and no dropout unless it is asked for.
inline void settle_measured_model(ModelOptions& model) {
  if (model.model.empty() && !model.family && !model.layers) model.model = "gpt2-124m";
  if (!model.hidden_dropout) model.hidden_dropout = 0;
  if (!model.attention_dropout) model.attention_dropout = 0;
}

// A few steps are measured, however long the run is.
inline void settle_length(LoopOptions& loop) {
  loop.num_train_epochs.reset();
  if (loop.train_iters == 0 && !loop.train_samples) loop.train_iters = 1;
}

}  // namespace piton::cli
