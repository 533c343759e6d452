// Flags of MindSpeed-LLM's MiniCPM and Grok, and of Megatron-core, whose values are computed from
// those of options here:
//
//   --dim-model-base D             logits are divided by hidden / D:      --logits-scaling
//   --output-multiplier-scale F    logits are multiplied by F:            --logits-scaling
//   --scale-depth S                branches are multiplied by S / sqrt(layers):
//                                  --residual-multiplier
//   --window-size (L, R)           a token sees L earlier keys; R is 0, attention is causal; -1 of
//                                  both: all keys:                        --pre-tockens
//
// Sources: MindSpeed-LLM's GPTModel and TransformerLayer; get_sliding_window_causal_mask
// of Megatron-core 0.16.
#pragma once

#include "base/options/options.h"
#include "cli/compatibility/megatron_flags.h"

namespace piton::cli {

// Sets these options as the flags ask; nothing without them. `model`: that of `set`. Throws
// Error(kUsage) that names the flag if its value is none, an option says the same, or the sizes of
// the model are not given.
void read_model_factors(const MegatronFlags& given, OptionSet& set, const ModelOptions& model);

}  // namespace piton::cli
