// Maps names of tensors in Megatron's module trees to keys (megatron/format/layout.h). Versions of
// Megatron-LM, MindSpeed-LLM and AscendSpeed name the same tensor differently; all known names can
// be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace piton {

enum class MegatronTree {
  kLegacy,       // model: {language_model: {embedding: ..., encoder: {"layers.0. ...": ...}}}
  kCore,         // model: {"decoder.layers.0. ...": ...}, with its own layers
  kTransformer,  // the same with those of Transformer Engine, whose linears hold their norms
  // As kCore, with MindSpeed-LLM's names of the norms before and after layers that predict later
  // tokens: of models that have these.
  kMindSpeed,
};

// Which stacks a model has. Trees name them differently:
//
//            kDecoder                kEncoder                kBoth
//   kLegacy  language_model.encoder  language_model.encoder  language_model.encoder and .decoder
//   others   decoder                 encoder                 encoder and decoder
//
// kHybrid, of layers of Mamba-2 and others, is as kDecoder; its last norm has another name.
enum class MegatronStacks { kDecoder, kEncoder, kBoth, kHybrid };

// Under kBoth, keys of the encoder begin with this.
inline constexpr std::string_view kEncoderKeys = "encoder.";
// And those of layers that predict later tokens with this; Megatron-core alone has them.
inline constexpr std::string_view kLaterKeys = "mtp.";

// The key of a tensor by its name in the file, nested dicts joined by dots; nullopt if it is not a
// weight or not known. For example "layers.3.qkv.weight" for
// "language_model.encoder.layers.3.self_attention.query_key_value.weight". It does not say which
// stack the tensor is of.
std::optional<std::string> megatron_key(std::string_view name);

// True for layers and the norm of a module that is called encoder.
bool is_in_encoder(std::string_view name);

// True for names of tensors that follow from the configuration: angles, states of Transformer
// Engine.
bool is_ignored_by_megatron(std::string_view name);

// The number of an expert in "layers.N.experts.E.fc1.weight", or of a group of experts in
// "layers.N.grouped.G.fc1.weight"; nullopt: the key is of neither.
std::optional<std::int64_t> expert_of_key(std::string_view key);
// The key with another number of the expert or group.
std::string with_expert(const std::string& key, std::int64_t expert);
bool is_group_of_experts(std::string_view key);
// "layers.N.experts.E.fc1.weight" for "layers.N.grouped.G.fc1.weight".
std::string key_in_group(const std::string& key, std::int64_t expert);

// The inverse, with dots where dicts nest.
std::string megatron_name(const std::string& key, MegatronTree tree,
                          MegatronStacks stacks = MegatronStacks::kDecoder);

// Other names under which the tree has the same tensor again: those of Megatron-core's T5Model.
std::vector<std::string> megatron_copies(const std::string& key, MegatronTree tree,
                                         MegatronStacks stacks);

}  // namespace piton
