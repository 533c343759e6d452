// Maps names of tensors in Megatron's module trees to keys (megatron/format/layout.h). Versions of
// Megatron-LM, MindSpeed-LLM and AscendSpeed name the same tensor differently; all known names can
// be read.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace piton {

enum class MegatronTree {
  kLegacy,       // model: {language_model: {embedding: ..., encoder: {"layers.0. ...": ...}}}
  kCore,         // model: {"decoder.layers.0. ...": ...}, with its own layers
  kTransformer,  // the same with those of Transformer Engine, whose linears hold their norms
};

// The key of a tensor by its name in the file, nested dicts joined by dots; nullopt if it is not a
// weight or not known. For example "layers.3.qkv.weight" for
// "language_model.encoder.layers.3.self_attention.query_key_value.weight".
std::optional<std::string> megatron_key(std::string_view name);

// True for names of tensors that follow from the configuration: angles, states of Transformer
// Engine.
bool is_ignored_by_megatron(std::string_view name);

// The inverse, with dots where dicts nest.
std::string megatron_name(const std::string& key, MegatronTree tree);

}  // namespace piton
