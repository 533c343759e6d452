// What the arguments of a Megatron run do not say of its model, and its tensors show: Megatron-LM
// has the same arguments for a decoder, an encoder (BERT), and an encoder with a decoder (T5).
#pragma once

#include <cstdint>
#include <string>

#include "megatron/format/megatron_files.h"
#include "model/config.h"

namespace piton {

struct MegatronParts {
  bool word_head = false;  // of an encoder
  bool pair_head = false;
  std::int64_t token_types = 0;
  bool head_like_layers = false;    // MegatronArguments
  std::int64_t encoder_layers = 0;  // of an encoder and a decoder; else 0
  std::int64_t decoder_layers = 0;

  // Those of a model, without head_like_layers.
  static MegatronParts of(const ModelConfig& model);
  // Adds what the tensors of a rank show.
  void add(const BoxedTensors& tensors);
  // Makes the model one of these parts; a decoder where there are none.
  void apply(ModelConfig& model) const;
  // Throws Error(kUsage) with `where` if `model`, which the user describes, is of another kind.
  void check_kind(const ModelConfig& model, const std::string& where) const;
};

}  // namespace piton
