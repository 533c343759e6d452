// The model that `piton bench` measures where the user leaves it open.
#pragma once

#include "model/config.h"

namespace piton::cli {

// GPT-2 124M if none is named, and no dropout unless it is asked for.
inline void settle_measured_model(ModelOptions& model) {
  if (model.model.empty() && !model.family && !model.layers) model.model = "gpt2-124m";
  if (!model.hidden_dropout) model.hidden_dropout = 0;
  if (!model.attention_dropout) model.attention_dropout = 0;
}

}  // namespace piton::cli
