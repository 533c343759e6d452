#include "megatron/format/names.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

struct Name {
  std::string_view key;
  std::string_view name;
};

// Names in a layer, after "layers.N.". Files are written with these or with those of kCoreLayer.
constexpr Name kLegacyLayer[] = {
    {"input_norm.", "input_layernorm."},
    {"qkv.", "self_attention.query_key_value."},
    {"dense.", "self_attention.dense."},
    {"q_norm.", "self_attention.q_layernorm."},
    {"k_norm.", "self_attention.k_layernorm."},
    {"post_norm.", "post_attention_layernorm."},
    {"fc1.", "mlp.dense_h_to_4h."},
    {"fc2.", "mlp.dense_4h_to_h."},
    {"gate.", "mlp.gate_proj."},
    {"up.", "mlp.up_proj."},
    {"cross_q.", "inter_attention.query."},
    {"cross_kv.", "inter_attention.key_value."},
    {"cross_dense.", "inter_attention.dense."},
    {"inter_norm.", "post_inter_attention_layernorm."},
};
// In place of those, in a layer with attention to an encoder.
constexpr Name kLegacyCrossLayer[] = {
    {"cross_norm.", "post_attention_layernorm."},
    {"post_norm.", "post_inter_attention_layernorm."},
};
constexpr Name kCoreLayer[] = {
    {"input_norm.", "input_layernorm."},
    {"qkv.", "self_attention.linear_qkv."},
    {"dense.", "self_attention.linear_proj."},
    {"q_norm.", "self_attention.q_layernorm."},
    {"k_norm.", "self_attention.k_layernorm."},
    {"post_norm.", "pre_mlp_layernorm."},
    {"fc1.", "mlp.linear_fc1."},
    {"fc2.", "mlp.linear_fc2."},
    {"router.", "mlp.router."},
    {"shared_fc1.", "mlp.shared_experts.linear_fc1."},
    {"shared_fc2.", "mlp.shared_experts.linear_fc2."},
    {"cross_norm.", "pre_cross_attn_layernorm."},
    {"cross_q.", "cross_attention.linear_q."},
    {"cross_kv.", "cross_attention.linear_kv."},
    {"cross_dense.", "cross_attention.linear_proj."},
    {"q_proj.", "self_attention.linear_q_proj."},
    {"q_down.", "self_attention.linear_q_down_proj."},
    {"q_up.", "self_attention.linear_q_up_proj."},
    {"q_up_norm.", "self_attention.q_layernorm."},  // NamedTensors knows it from q_norm
    {"kv_down.", "self_attention.linear_kv_down_proj."},
    {"kv_up.", "self_attention.linear_kv_up_proj."},
    {"kv_up_norm.", "self_attention.kv_layernorm."},
    {"q_own.", "self_attention.linear_qk_nope."},  // these four are of MindSpeed-LLM
    {"q_turned.", "self_attention.linear_qk_rope."},
    {"k_own.", "self_attention.linear_kv_nope."},
    {"v_up.", "self_attention.linear_v."},
    {"state_norm.", "input_layernorm."},  // NamedTensors knows it from input_norm
    {"delta_norm.", "self_attention.out_norm."},
    {"delta_out.", "self_attention.out_proj."},
    {"mamba_start_norm.", "norm."},
    {"mamba_norm.", "mixer.norm."},
    {"mamba_out.", "mixer.out_proj."},
};
// In place of those of kCoreLayer.
constexpr Name kTransformerLayer[] = {
    {"input_norm.", "self_attention.linear_qkv.layer_norm_"},
    {"post_norm.", "mlp.linear_fc1.layer_norm_"},
    {"q_up_norm.", "self_attention.linear_q_up_proj.layer_norm_"},
    {"kv_up_norm.", "self_attention.linear_kv_up_proj.layer_norm_"},
    {"state_norm.", "self_attention.in_proj.layer_norm_"},
    {"mamba_start_norm.", "mixer.in_proj.layer_norm_"},
};
// In a layer that predicts later tokens, next to the module kLaterBlock of an ordinary one.
constexpr Name kLaterLayer[] = {
    {"token_norm.", "enorm."},
    {"hidden_norm.", "hnorm."},
    {"projection.", "eh_proj."},
    {"final_norm.", "final_layernorm."},
};
constexpr std::string_view kLaterBlock = "transformer_layer.";
// MindSpeed-LLM's names of the norm after such a layer, and of the norm after the model's own
// layers where there are such layers; and older ones of the layers.
constexpr std::string_view kLaterNorms = "mtp.final_layernorms.";
constexpr std::string_view kNormBeforeLater = "final_layernorm.";
constexpr std::string_view kNormOfHybrid = "final_norm.";  // of Megatron-core's MambaModel
constexpr std::string_view kOlderLaterLayers = "mtp_layers.";
// Other versions; only for reading.
constexpr Name kOtherLayer[] = {
    {"input_norm.", "input_norm."},
    {"post_norm.", "post_attention_norm."},
    {"qkv.", "attention.query_key_value."},
    {"dense.", "attention.dense."},
    {"q_norm.", "self_attention.q_norm."},
    {"k_norm.", "self_attention.k_norm."},
    {"fc1.", "mlp.proj."},
    {"fc2.", "mlp.down_proj."},
    {"inter_norm.", "post_inter_attention_norm."},
    {"q_up.", "self_attention.linear_qb."},  // of MindSpeed-LLM, as the next two
    {"kv_up.", "self_attention.linear_kvb."},
    {"shared_gate.", "mlp.shared_expert_gate."},
};

constexpr Name kLegacyEnds[] = {
    {"word_embeddings.weight", "language_model.embedding.word_embeddings.weight"},
    {"position_embeddings.weight", "language_model.embedding.position_embeddings.weight"},
    {"token_types.weight", "language_model.embedding.tokentype_embeddings.weight"},
    {"embedding_norm.", "language_model.embedding.word_embeddings.norm."},
    {"pooler.", "language_model.pooler.dense."},
    {"lm_dense.", "lm_head.dense."},
    {"lm_norm.", "lm_head.layernorm."},
    {"output.bias", "lm_head.bias"},
    {"binary_head.", "binary_head."},
    {"output.weight", "language_model.output_layer.weight"},
    {"head_copy.weight", "word_embeddings_for_head.weight"},
};
constexpr Name kCoreEnds[] = {
    {"word_embeddings.weight", "embedding.word_embeddings.weight"},
    {"position_embeddings.weight", "embedding.position_embeddings.weight"},
    {"token_types.weight", "embedding.tokentype_embeddings.weight"},
    {"embedding_norm.", "embedding.word_embeddings.norm."},
    {"pooler.", "pooler.dense."},
    {"lm_dense.", "lm_head.dense."},
    {"lm_norm.", "lm_head.layer_norm."},
    {"output.bias", "output_layer.bias"},
    {"binary_head.", "binary_head."},
    {"output.weight", "output_layer.weight"},
    {"head_copy.weight", "output_layer.weight"},
};
// By the end of a name; only for reading.
constexpr Name kOtherEnds[] = {
    {"embedding_norm.weight", "word_embeddings.norm.weight"},
    {"embedding_norm.bias", "word_embeddings.norm.bias"},
    {"final_norm.weight", "final_layernorm.weight"},
    {"final_norm.bias", "final_layernorm.bias"},
    {"final_norm.weight", "final_norm.weight"},
    {"final_norm.bias", "final_norm.bias"},
    {"output.weight", "lm_head.weight"},
    {"output.weight", "output_layer.weight"},
    {"word_embeddings.weight", "word_embeddings.weight"},
    {"position_embeddings.weight", "position_embeddings.weight"},
    {"head_copy.weight", "word_embeddings_for_head.weight"},
    {"token_types.weight", "tokentype_embeddings.weight"},
    {"pooler.weight", "pooler.dense.weight"},
    {"pooler.bias", "pooler.dense.bias"},
    {"lm_dense.weight", "lm_head.dense.weight"},
    {"lm_dense.bias", "lm_head.dense.bias"},
    {"lm_norm.weight", "lm_head.layernorm.weight"},
    {"lm_norm.bias", "lm_head.layernorm.bias"},
    {"lm_norm.weight", "lm_head.layer_norm.weight"},
    {"lm_norm.bias", "lm_head.layer_norm.bias"},
    {"lm_norm.weight", "lm_head.norm.weight"},
    {"lm_norm.bias", "lm_head.norm.bias"},
    {"output.bias", "lm_head.bias"},
    {"output.bias", "output_layer.bias"},
    {"binary_head.weight", "binary_head.weight"},
    {"binary_head.bias", "binary_head.bias"},
};

template <std::size_t N>
std::optional<std::string> key_of(const Name (&names)[N], std::string_view name) {
  for (const Name& one : names) {
    if (!name.starts_with(one.name)) continue;
    const std::string_view rest = name.substr(one.name.size());
    if (rest == "weight" || rest == "bias") return std::string(one.key) + std::string(rest);
  }
  return std::nullopt;
}

template <std::size_t N>
std::optional<std::string> name_of(const Name (&names)[N], std::string_view key) {
  for (const Name& one : names) {
    if (key.starts_with(one.key))
      return std::string(one.name) + std::string(key.substr(one.key.size()));
  }
  return std::nullopt;
}

constexpr std::string_view kExperts = "mlp.experts.local_experts.";
constexpr std::string_view kGroupedExperts = "mlp.experts.";  // of Transformer Engine
// All experts of a rank, as products of several experts read them (layout.h); by key and name.
constexpr Name kGroups[] = {
    {"grouped.0.fc1.weight", "mlp.experts.weight1"},
    {"grouped.0.fc2.weight", "mlp.experts.weight2"},
};
// Whole names, by key and name: of learned sinks, and of layers with states, of which torch_dist
// has parts.
constexpr Name kWholeNames[] = {
    {"sinks", "self_attention.core_attention.softmax_offset"},
    {"delta_rate", "self_attention.A_log"},
    {"delta_bias", "self_attention.dt_bias"},
    {"delta_in.weight", "self_attention.in_proj.weight"},
    {"delta_filter.weight", "self_attention.conv1d.weight"},
    {"mamba_rate", "mixer.A_log"},
    {"mamba_skip", "mixer.D"},
    {"mamba_bias", "mixer.dt_bias"},
    {"mamba_in.weight", "mixer.in_proj.weight"},
    {"mamba_filter.weight", "mixer.conv1d.weight"},
    {"mamba_filter.bias", "mixer.conv1d.bias"},
};
constexpr std::string_view kStateParts[] = {"",       ".query", ".key", ".value", ".z", ".beta",
                                            ".alpha", ".x",     ".B",   ".C",     ".dt"};
constexpr std::string_view kSharedGateName = "mlp.shared_experts.gate_weight";
constexpr std::string_view kSharedGateKey = "shared_gate.weight";
// Added to scores for the choice alone. A router's "bias" is of the scores themselves.
constexpr std::string_view kChoiceBiasName = "mlp.router.expert_bias";
constexpr std::string_view kChoiceBiasKey = "router.bias";
constexpr std::string_view kLogitBiasName = "mlp.router.bias";
constexpr std::string_view kLogitBiasKey = "router.logit_bias";

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// "experts.3.fc1.weight" of "mlp.experts.local_experts.3.linear_fc1.weight" and of
// "mlp.experts.linear_fc1.weight3".
std::optional<std::string> expert_key(std::string_view rest) {
  if (rest.starts_with(kExperts)) {
    const std::string_view own = rest.substr(kExperts.size());
    const std::size_t point = own.find('.');
    if (point == own.npos || !is_number(own.substr(0, point))) return std::nullopt;
    for (const char* fc : {"fc1.weight", "fc2.weight", "fc1.bias", "fc2.bias"}) {
      if (own.substr(point + 1) == fmt::format("linear_{}", fc))
        return fmt::format("experts.{}.{}", own.substr(0, point), fc);
    }
  }
  for (const char* fc : {"fc1.weight", "fc2.weight", "fc1.bias", "fc2.bias"}) {
    const std::string before = fmt::format("{}linear_{}", kGroupedExperts, fc);
    if (rest.starts_with(before) && is_number(rest.substr(before.size())))
      return fmt::format("experts.{}.{}", rest.substr(before.size()), fc);
  }
  return std::nullopt;
}

// The inverse, of a key after "experts.".
std::string expert_name(std::string_view key) {
  const std::size_t point = key.find('.') + 1;
  return fmt::format("{}{}linear_{}", kExperts, key.substr(0, point), key.substr(point));
}

std::optional<std::string> layer_key(std::string_view rest) {
  if (rest == kSharedGateName) return std::string(kSharedGateKey);
  if (rest == kChoiceBiasName) return std::string(kChoiceBiasKey);
  if (rest == kLogitBiasName) return std::string(kLogitBiasKey);
  for (const Name& group : kGroups) {
    if (rest == group.name) return std::string(group.key);
  }
  for (const Name& whole : kWholeNames) {
    const bool own = rest.starts_with(whole.name);
    const std::string_view part = own ? rest.substr(whole.name.size()) : "";
    if (own && std::ranges::find(kStateParts, part) != std::end(kStateParts))
      return std::string(whole.key) + std::string(part);
  }
  if (const std::optional<std::string> found = expert_key(rest)) return found;
  for (const auto& found : {key_of(kTransformerLayer, rest), key_of(kLegacyLayer, rest),
                            key_of(kCoreLayer, rest), key_of(kOtherLayer, rest)}) {
    if (found) return found;
  }
  return std::nullopt;
}

// After "mtp.layers.N.".
std::optional<std::string> later_layer_key(std::string_view rest) {
  if (rest.starts_with(kLaterBlock)) return layer_key(rest.substr(kLaterBlock.size()));
  return key_of(kLaterLayer, rest);
}

constexpr std::string_view kExpertKeys = ".experts.";
constexpr std::string_view kGroupKeys = ".grouped.";

// Where the number of an expert or of a group begins; npos: the key is of none.
std::size_t expert_number(std::string_view key) {
  for (const std::string_view keys : {kExpertKeys, kGroupKeys}) {
    const std::size_t at = key.find(keys);
    if (at != key.npos) return at + keys.size();
  }
  return key.npos;
}

struct LayerKind {
  MegatronTree tree;
  bool crosses;  // attends to an encoder
};

// Of a key after "layers.N.".
std::optional<std::string> layer_name(std::string_view rest, const LayerKind& kind) {
  const bool legacy = kind.tree == MegatronTree::kLegacy;
  std::optional<std::string> name;
  if (kind.tree == MegatronTree::kTransformer) name = name_of(kTransformerLayer, rest);
  if (legacy && kind.crosses) name = name_of(kLegacyCrossLayer, rest);
  if (!legacy && rest == kSharedGateKey) name = kSharedGateName;
  if (!legacy && rest == kChoiceBiasKey) name = kChoiceBiasName;
  if (!legacy && rest == kLogitBiasKey) name = kLogitBiasName;
  if (!legacy && rest.starts_with("experts.")) name = expert_name(rest.substr(8));
  for (const Name& whole : kWholeNames) {
    if (!legacy && rest.starts_with(whole.key))
      name = std::string(whole.name) + std::string(rest.substr(whole.key.size()));
  }
  if (!name) name = legacy ? name_of(kLegacyLayer, rest) : name_of(kCoreLayer, rest);
  return name;
}

}  // namespace

std::optional<std::int64_t> expert_of_key(std::string_view key) {
  const std::size_t at = expert_number(key);
  if (at == key.npos) return std::nullopt;
  const std::string_view own = key.substr(at);
  std::int64_t expert = 0;
  const auto [stop, error] = std::from_chars(own.data(), own.data() + own.size(), expert);
  if (error != std::errc()) return std::nullopt;
  return expert;
}

std::string with_expert(const std::string& key, std::int64_t expert) {
  const std::size_t at = expert_number(key);
  return fmt::format("{}{}{}", key.substr(0, at), expert, key.substr(key.find('.', at)));
}

bool is_group_of_experts(std::string_view key) { return key.find(kGroupKeys) != key.npos; }

std::string key_in_group(const std::string& key, std::int64_t expert) {
  const std::size_t at = key.find(kGroupKeys);
  const std::size_t end = key.find('.', at + kGroupKeys.size());
  return fmt::format("{}{}{}{}", key.substr(0, at), kExpertKeys, expert, key.substr(end));
}

bool is_ignored_by_megatron(std::string_view name) {
  return name.ends_with("_extra_state") || name.ends_with(".inv_freq");
}

std::optional<std::string> megatron_key(std::string_view name) {
  if (name.starts_with(kOlderLaterLayers)) {
    return megatron_key(
        fmt::format("{}layers.{}", kLaterKeys, name.substr(kOlderLaterLayers.size())));
  }
  if (name.starts_with(kLaterNorms)) {
    const std::string_view own = name.substr(kLaterNorms.size());
    const std::size_t point = std::min(own.find('.'), own.size());
    if (!is_number(own.substr(0, point))) return std::nullopt;
    return megatron_key(fmt::format("{}layers.{}.final_layernorm{}", kLaterKeys,
                                    own.substr(0, point), own.substr(point)));
  }
  const std::size_t layers = name.find("layers.");
  if (layers != name.npos && (layers == 0 || name[layers - 1] == '.')) {
    const std::size_t number = layers + 7;
    const std::size_t point = name.find('.', number);
    if (point == name.npos) return std::nullopt;
    const std::string_view rest = name.substr(point + 1);
    const bool later = name.substr(0, layers).ends_with(kLaterKeys);
    if (later && rest == kCoreEnds[0].name) return std::string(kCoreEnds[0].key);
    const std::optional<std::string> key = later ? later_layer_key(rest) : layer_key(rest);
    if (!key) return std::nullopt;
    return fmt::format("{}layers.{}.{}", later ? kLaterKeys : "",
                       name.substr(number, point - number), *key);
  }
  for (const Name& one : kOtherEnds) {
    if (name == one.name ||
        (name.ends_with(one.name) && name[name.size() - one.name.size() - 1] == '.')) {
      return std::string(one.key);
    }
  }
  return std::nullopt;
}

bool is_in_encoder(std::string_view name) {
  for (const std::string_view part : {"layers.", "final_layernorm.", "final_norm."}) {
    const std::size_t at = name.find(part);
    if (at == name.npos) continue;
    const std::string_view module = name.substr(0, at);
    return module == kEncoderKeys || module.ends_with(".encoder.");
  }
  return false;
}

std::string megatron_name(const std::string& key, MegatronTree tree, MegatronStacks stacks) {
  const bool legacy = tree == MegatronTree::kLegacy;
  const bool both = stacks == MegatronStacks::kBoth;
  const bool of_encoder = key.starts_with(kEncoderKeys);
  const std::string own = of_encoder ? key.substr(kEncoderKeys.size()) : key;
  // The modules of layers, and of the norm after them.
  const std::string_view outer = legacy ? "language_model." : "";
  const bool is_encoder = both ? of_encoder : legacy || stacks == MegatronStacks::kEncoder;
  const std::string stack = fmt::format("{}{}", outer, is_encoder ? "encoder." : "decoder.");
  std::optional<std::string> name;
  if (own.starts_with(kLaterKeys)) {
    const std::size_t point = own.find('.', kLaterKeys.size() + 7) + 1;
    const std::string_view rest = std::string_view(own).substr(point);
    name = name_of(kLaterLayer, rest);
    constexpr std::string_view kNorm = "final_norm.";
    if (tree == MegatronTree::kMindSpeed && rest.starts_with(kNorm)) {
      const std::size_t number = kLaterKeys.size() + 7;
      return fmt::format("{}{}{}", kLaterNorms, own.substr(number, point - number),
                         rest.substr(kNorm.size()));
    }
    if (!name) {
      name = layer_name(rest, {tree, false});
      if (name) name = std::string(kLaterBlock) + *name;
    }
    if (name) name = own.substr(0, point) + *name;
  } else if (own.starts_with("layers.")) {
    const std::size_t point = own.find('.', 7) + 1;
    name = layer_name(std::string_view(own).substr(point), {tree, both && !of_encoder});
    if (name) name = fmt::format("{}{}{}", stack, own.substr(0, point), *name);
  } else if (own.starts_with("final_norm.")) {
    const bool apart = tree == MegatronTree::kMindSpeed;
    const bool hybrid = stacks == MegatronStacks::kHybrid;
    name = fmt::format("{}{}{}", apart ? "" : stack, hybrid ? kNormOfHybrid : kNormBeforeLater,
                       own.substr(11));
  } else if (both && !legacy && own.starts_with("output.")) {
    name = "lm_head.output_layer." + own.substr(7);
  } else {
    name = legacy ? name_of(kLegacyEnds, own) : name_of(kCoreEnds, own);
  }
  PITON_ASSERT(name, "{} has no name in Megatron", key);
  return *name;
}

std::vector<std::string> megatron_copies(const std::string& key, MegatronTree tree,
                                         MegatronStacks stacks) {
  if (tree == MegatronTree::kLegacy || stacks != MegatronStacks::kBoth) return {};
  if (key == "position_embeddings.weight") return {key};
  if (key.starts_with("output.")) return {"output_layer." + key.substr(7)};
  return {};
}

}  // namespace piton
