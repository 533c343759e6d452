// A run that starts from the weights of a Hugging Face folder: --load names it, and the model is
// what its config.json says.
#pragma once

#include <memory>

#include "huggingface/hf_source.h"
#include "train/pretrain_options.h"

namespace piton {

// Null where --load names no such folder. Else completes `options`: the model's flags from the
// folder where the command line gives none, and its tokenizer where none is named. A run starts
// from its weights as with --finetune, whether that is given or not. What weights do not depend on
// may be given otherwise: dropout, the window, rotary positions, --bf16. Throws Error(kUsage)
// naming a flag that contradicts the folder, and Error(kData) for a folder that cannot be read.
std::unique_ptr<HfSource> adopt_foreign_model(PretrainOptions& options);

// Sets the options that nobody gave to those of `from`.
void fill_open_options(ModelOptions& options, ModelOptions from);

// Throws Error(kUsage) naming the first flag by which `got` has other weights than `wanted`, the
// model of `folder`.
void refuse_contradictions(const ModelConfig& got, const ModelConfig& wanted,
                           const std::string& folder);

// The tokenizer's ids must have rows; a table with more of them than ids is common. Throws
// Error(kData) that names the `folder` of the model.
void check_rows_for(const Tokenizer& tokenizer, const ModelConfig& model,
                    const std::string& folder);

}  // namespace piton
