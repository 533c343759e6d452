// What config.toml of a checkpoint of Piton says of its model and tokenizer. The other options of
// the run are not read: they are declared where runs are (train/run/pretrain_options.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "model/config.h"
#include "model/lora/lora_options.h"
#include "text/files/tokenizer_options.h"

namespace piton {

struct NativeConfig {
  ModelOptions model;
  TokenizerOptions tokenizer;
  // Of a run that trains adapters: its checkpoints have these alone, and `base` is the model that
  // they belong to (--load).
  LoraOptions lora;
  std::string base;
};

// The tokenizer is the run's copy of it, if there is one. Throws Error(kData) if config.toml is not
// what was saved: it has a hash like the weights, as other options with the same tensors would be
// another model.
NativeConfig read_native_config(const std::filesystem::path& checkpoint);

// The model that the options describe, checked. If there is a tokenizer, the vocabulary is the
// tokenizer's. NullTokenizer adds an end-of-document id after the --vocab-size ids, as in
// Megatron.
ModelConfig resolve_model(const ModelOptions& model, const TokenizerOptions& tokenizer,
                          std::optional<std::int64_t> tokenizer_vocabulary);

}  // namespace piton
