// Starts a run from the weights of another program, or continues a run of Megatron: --load names
// a Hugging Face folder or a checkpoint of Megatron, which describes the model.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "megatron/format/run_progress.h"
#include "train/run/pretrain_options.h"

namespace piton {

struct ForeignModel {
  ModelConfig model;
  std::string kind;  // "llama", "checkpoint of Megatron": for messages
  std::vector<std::string> notes;
  std::map<std::string, std::string> facts;  // of checkpoints: huggingface/origin.h
  std::unique_ptr<TensorSource> source;
  // Of Megatron, which this run continues. Its optimizer's state is in `source`, unless
  // --no-load-optim is given. Nullopt: a new run from the weights.
  std::optional<MegatronRun> run;
  DType dtype = DType::kF32;  // of the weights as they are stored
};

// Nullopt if --load does not name such a folder. Otherwise completes `options`: flags of the model
// that the command line does not give, and the tokenizer if none is named. A run starts from the
// weights as with --finetune, whether that is given or not; but a checkpoint of Megatron that is no
// release continues, unless --finetune is given. Settings that do not affect weights may
// differ: dropout, the window, rotary positions, --bf16. Throws Error(kUsage) with a flag that
// contradicts the folder, and Error(kData) for a folder that cannot be read.
std::optional<ForeignModel> adopt_foreign_model(PretrainOptions& options);

// Sets the options that nobody gave to those of `from`.
void fill_open_options(ModelOptions& options, ModelOptions from);

// Whether the flags describe a model; its vocabulary may be the tokenizer's.
bool describe_a_model(const ModelOptions& flags);

// Whether the flags describe `model`, as a script of Megatron-LM does, without what the folder
// says.
bool gives_whole_model(const ModelOptions& flags, const ModelConfig& model);

// Throws Error(kUsage) naming the first flag by which `got` has other weights than `wanted`, the
// model of `folder`.
void refuse_contradictions(const ModelConfig& got, const ModelConfig& wanted,
                           const std::string& folder);

// The tokenizer's ids must have rows; a table with more of them than ids is common. Throws
// Error(kData) that names the `folder` of the model.
void check_rows_for(const Tokenizer& tokenizer, const ModelConfig& model,
                    const std::string& folder);

}  // namespace piton
