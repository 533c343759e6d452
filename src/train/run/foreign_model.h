// Starts a run from the weights of another program, or continues a run of Megatron: --load names
// a Hugging Face folder, a GGUF file or a checkpoint of Megatron, which describes the model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "model_files/opened_model.h"
#include "train/run/pretrain_options.h"

namespace piton {

// Nullopt if --load does not name such a model. Otherwise completes `options`: flags of the model
// that the command line does not give, and the tokenizer if none is named. A run starts from the
// weights as with --finetune, whether that is given or not; but a checkpoint of Megatron that is no
// release continues, unless --finetune is given: then `run` is set, and the optimizer's state is in
// `source`, unless --no-load-optim is given. Settings that do not affect weights may
// differ: dropout, the window, rotary positions, --bf16. Throws Error(kUsage) with a flag that
// contradicts the model, and Error(kData) for one that cannot be read.
std::optional<OpenedModel> adopt_foreign_model(PretrainOptions& options);

// Whether --load names a model that has a head for labels or rewards. Throws Error(kData) for one
// that cannot be read.
bool has_labels_of_own(const PretrainOptions& options);

// Of the facts of a model's own run, those that hold for a model that is made of it.
std::map<std::string, std::string> facts_of_base(const OpenedModel& base);

// Sets the options that nobody gave to those of `from`.
void fill_open_options(ModelOptions& options, ModelOptions from);

// Whether the flags describe a model; its vocabulary may be the tokenizer's.
bool describe_a_model(const ModelOptions& flags);

// Whether the flags describe `model`, as a script of Megatron-LM does, without what the folder
// says.
bool gives_whole_model(const ModelOptions& flags, const ModelConfig& model);

// Throws Error(kUsage): the model of `folder` has none.
[[noreturn]] void refuse_experts(std::int64_t experts, const std::string& folder);

// Throws Error(kUsage) naming the first flag by which `got` has other weights than `wanted`, the
// model of `folder`.
void refuse_contradictions(const ModelConfig& got, const ModelConfig& wanted,
                           const std::string& folder);

}  // namespace piton
