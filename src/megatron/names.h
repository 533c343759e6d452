// Names of tensors in Megatron's module trees, and the keys of megatron/layout.h that stand for
// them. Versions of Megatron-LM, MindSpeed-LLM and AscendSpeed name the same tensor differently;
// all that are known are read.
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

// The key of a tensor by its name in the file, nested dicts joined by points; nullopt for one that
// is not a weight or not known. "layers.3.qkv.weight" of
// "language_model.encoder.layers.3.self_attention.query_key_value.weight".
std::optional<std::string> megatron_key(std::string_view name);

// Names that follow from the configuration: angles, states of Transformer Engine.
bool is_ignored_by_megatron(std::string_view name);

// The other way, points where dicts nest included.
std::string megatron_name(const std::string& key, MegatronTree tree);

}  // namespace piton
