#include "huggingface/families/llama_like.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "huggingface/families/names.h"

namespace piton {
namespace {

RotaryScaling::Kind scaling_kind(const HfConfig& rope, const std::string& key) {
  using Kind = RotaryScaling::Kind;
  const std::string type = rope.word(key, "default");
  if (type == "default") return Kind::kNone;
  if (type == "linear") return Kind::kLinear;
  if (type == "dynamic") return Kind::kDynamic;
  if (type == "llama3") return Kind::kLlama3;
  if (type == "yarn") return Kind::kYarn;
  if (type == "longrope" || type == "su") return Kind::kLongrope;
  rope.refuse(key, "default, linear, dynamic, llama3, yarn or longrope");
}

}  // namespace

double longrope_factor(const HfConfig& rope, std::int64_t longest, std::int64_t original) {
  const double ratio = static_cast<double>(longest) / static_cast<double>(original);
  return std::max(1.0, rope.number("factor", ratio));
}

namespace {

RotaryScaling scaling_of(const HfConfig& config, const HfConfig& rope, std::int64_t positions) {
  const std::string key = rope.has("rope_type") ? "rope_type" : "type";
  RotaryScaling scaling{.kind = scaling_kind(rope, key)};
  if (scaling.kind == RotaryScaling::Kind::kNone) return scaling;
  // Transformers prefers the outer one, and has none for these two kinds.
  const auto original = [&](const HfConfig& place, std::int64_t otherwise) {
    return place.size("original_max_position_embeddings", otherwise);
  };
  const bool has_none =
      scaling.kind == RotaryScaling::Kind::kLinear || scaling.kind == RotaryScaling::Kind::kDynamic;
  scaling.original_positions = has_none ? positions : original(config, original(rope, positions));
  const bool longrope = scaling.kind == RotaryScaling::Kind::kLongrope;
  scaling.factor = longrope ? longrope_factor(rope, positions, scaling.original_positions)
                            : rope.number("factor");
  scaling.low = rope.number("low_freq_factor", scaling.low);
  scaling.high = rope.number("high_freq_factor", scaling.high);
  scaling.fast = rope.number("beta_fast", scaling.fast);
  scaling.slow = rope.number("beta_slow", scaling.slow);
  scaling.whole_pairs = rope.flag("truncate", true);
  scaling.numerator = rope.number("mscale", 0.0);
  scaling.denominator = rope.number("mscale_all_dim", 0.0);
  if (rope.has("attention_factor")) scaling.magnitude = rope.number("attention_factor");
  scaling.short_factors = rope.numbers("short_factor");
  scaling.long_factors = rope.numbers("long_factor");
  return scaling;
}

std::string scaling_name(RotaryScaling::Kind kind) {
  using Kind = RotaryScaling::Kind;
  switch (kind) {
    case Kind::kNone:
      break;
    case Kind::kLinear:
      return "linear";
    case Kind::kDynamic:
      return "dynamic";
    case Kind::kLlama3:
      return "llama3";
    case Kind::kYarn:
      return "yarn";
    case Kind::kLongrope:
      return "longrope";
  }
  return "default";
}

nlohmann::ordered_json rope_keys(const ModelConfig& model) {
  using Kind = RotaryScaling::Kind;
  const RotaryScaling& scaling = model.rotary_scaling;
  nlohmann::ordered_json rope = {{"rope_type", scaling_name(scaling.kind)},
                                 {"rope_theta", model.rotary_base}};
  if (model.rotary_share != 1) rope["partial_rotary_factor"] = model.rotary_share;
  if (scaling.kind == Kind::kNone) return rope;
  rope["factor"] = scaling.factor;
  if (scaling.kind != Kind::kLinear && scaling.kind != Kind::kDynamic)
    rope["original_max_position_embeddings"] = scaling.original_positions;
  if (scaling.kind == Kind::kLlama3) {
    rope["low_freq_factor"] = scaling.low;
    rope["high_freq_factor"] = scaling.high;
  }
  if (scaling.kind == Kind::kYarn) {
    rope["beta_fast"] = scaling.fast;
    rope["beta_slow"] = scaling.slow;
    rope["truncate"] = scaling.whole_pairs;
    if (scaling.numerator != 0) rope["mscale"] = scaling.numerator;
    if (scaling.denominator != 0) rope["mscale_all_dim"] = scaling.denominator;
  }
  if (scaling.magnitude) rope["attention_factor"] = *scaling.magnitude;
  if (scaling.kind == Kind::kLongrope) {
    rope["short_factor"] = scaling.short_factors;
    rope["long_factor"] = scaling.long_factors;
  }
  return rope;
}

}  // namespace

void set_rotary(const HfConfig& config, const HfConfig& rope, double base, ModelConfig& model) {
  model.positions = PositionKind::kRotary;
  model.rotary_base = rope.number("rope_theta", config.number("rope_theta", base));
  model.rotary_share =
      rope.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0));
  model.rotary_scaling = scaling_of(config, rope, model.max_positions);
}

HfConfig rotary_keys(const HfConfig& config) {
  const HfConfig older = config.object("rope_scaling");
  return older.empty() ? config.object("rope_parameters") : older;
}

void set_rotary(const HfConfig& config, ModelConfig& model, double base) {
  set_rotary(config, rotary_keys(config), base, model);
}

void set_angles_of_both(const HfConfig& config, const RotaryBases& bases, ModelConfig& model) {
  const HfConfig both = config.object("rope_parameters");
  const HfConfig older = config.object("rope_scaling");
  const bool divided = both.has("full_attention") || both.has("sliding_attention");
  const HfConfig full = !older.empty() ? older : divided ? both.object("full_attention") : both;
  set_rotary(config, full, bases.full, model);
  if (model.rotary_share != 1) full.refuse("partial_rotary_factor", "1");
  const HfConfig local = both.object("sliding_attention");
  if (local.word("rope_type", "default") != "default") local.refuse("rope_type", "default");
  if (local.number("partial_rotary_factor", 1.0) != 1) local.refuse("partial_rotary_factor", "1");
  const double base = local.number("rope_theta", config.number("rope_theta", bases.local));
  if (model.window_before &&
      (base != model.rotary_base || model.rotary_scaling.kind != RotaryScaling::Kind::kNone))
    model.local_rotary_base = base;
}

nlohmann::ordered_json angles_of_both(const ModelConfig& model) {
  return {{"full_attention", rope_keys(model)},
          {"sliding_attention",
           {{"rope_type", "default"},
            {"rope_theta", model.local_rotary_base.value_or(model.rotary_base)}}}};
}

void refuse_partial_rotary(const HfConfig& config, const ModelConfig& model) {
  if (model.rotary_share == 1) return;
  const char* key = "partial_rotary_factor";
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const HfConfig rope = config.object(name);
    if (rope.has(key)) rope.refuse(key, "1: this family rotates all channels");
  }
  config.refuse(key, "1: this family rotates all channels");
}

std::string one_layer_type(const HfConfig& config) {
  const std::vector<std::string> types = config.words("layer_types");
  if (types.empty()) return "";
  const bool same = std::all_of(types.begin(), types.end(),
                                [&](const std::string& one) { return one == types.front(); });
  if (!same || (types.front() != "full_attention" && types.front() != "sliding_attention"))
    config.refuse("layer_types", "full_attention, or sliding_attention, in every layer");
  return types.front();
}

void set_routed_experts(const HfConfig& config, ModelConfig& model, const ExpertFacts& otherwise,
                        const RoutedWords& words) {
  ExpertFacts facts = otherwise;
  facts.experts = config.size(words.experts, otherwise.experts);
  facts.choices = config.size("num_experts_per_tok", otherwise.choices);
  facts.normalized = config.flag("norm_topk_prob", otherwise.normalized);
  facts.weight_factor = config.number("routed_scaling_factor", otherwise.weight_factor);
  facts.groups.count = config.size("n_group", otherwise.groups.count);
  facts.groups.chosen = config.size("topk_group", otherwise.groups.chosen);
  if (!facts.groups.divide() && facts.groups.chosen == 1) facts.groups = {};
  const std::string first = "first_k_dense_replace";
  const double dense = config.number(first, static_cast<double>(otherwise.dense_layers.size()));
  if (dense < 0 || dense >= static_cast<double>(model.layers))
    config.refuse(first, "0 or more, and fewer than num_hidden_layers");
  facts.dense_layers.clear();
  for (std::int64_t layer = 0; static_cast<double>(layer) < dense; ++layer)
    facts.dense_layers.push_back(layer);
  const std::int64_t width = config.size("moe_intermediate_size", otherwise.ffn_hidden);
  if (facts.dense_layers.empty()) model.ffn_hidden = width;
  facts.ffn_hidden = width == model.ffn_hidden ? 0 : width;
  const std::string shared = words.shared;
  facts.shared_ffn_hidden = 0;
  if (!config.lists(shared) || config.has(shared)) {
    const double count = config.number(shared, 1.0);
    if (count != 0) facts.shared_ffn_hidden = config.size(shared, 1) * width;
  }
  model.experts = facts;
}

void add_routed_expert_keys(const ModelConfig& model, nlohmann::ordered_json& keys,
                            const RoutedWords& words) {
  if (!model.experts) return;
  const ExpertFacts& facts = *model.experts;
  keys[words.experts] = facts.experts;
  keys["num_experts_per_tok"] = facts.choices;
  keys["norm_topk_prob"] = facts.normalized;
  keys["routed_scaling_factor"] = facts.weight_factor;
  keys["n_group"] = facts.groups.count;
  keys["topk_group"] = facts.groups.chosen;
  keys["first_k_dense_replace"] = facts.dense_layers.size();
  keys["moe_intermediate_size"] = model.expert_ffn_hidden();
  keys[words.shared] = facts.shared_ffn_hidden / model.expert_ffn_hidden();
}

void set_mlp_layer_types(const HfConfig& config, ModelConfig& model) {
  const char* key = "mlp_layer_types";
  const std::vector<std::string> types = config.words(key);
  if (types.empty()) return;
  ExpertFacts& facts = *model.experts;
  const std::int64_t width = model.expert_ffn_hidden();
  facts.dense_layers.clear();
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] == "dense") facts.dense_layers.push_back(static_cast<std::int64_t>(layer));
    if (types[layer] != "dense" && types[layer] != "sparse")
      config.refuse(key, "dense or sparse in each layer");
  }
  if (std::ssize(types) != model.layers || std::ssize(facts.dense_layers) == model.layers)
    config.refuse(key,
                  fmt::format("{} layers (num_hidden_layers), one of them sparse", model.layers));
  model.ffn_hidden = facts.dense_layers.empty() ? width : config.size("intermediate_size");
  facts.ffn_hidden = width == model.ffn_hidden ? 0 : width;
}

nlohmann::ordered_json mlp_layer_types(const ModelConfig& model) {
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    types.push_back(model.has_experts(layer) ? "sparse" : "dense");
  return types;
}

std::vector<HfPart> shared_experts_parts() {
  return {{"mlp.shared.gate.", "mlp.shared_experts.gate_proj."},
          {"mlp.shared.up.", "mlp.shared_experts.up_proj."},
          {"mlp.shared.down.", "mlp.shared_experts.down_proj."}};
}

ExpertFacts hf_experts(const HfConfig& config, ExpertFacts otherwise) {
  const char* newer = "num_local_experts";
  const char* older = "num_experts";
  ExpertFacts facts = otherwise;
  facts.experts = config.size(newer, config.size(older, otherwise.experts));
  if (config.size(older, facts.experts) != facts.experts)
    config.refuse(older, fmt::format("the same as {}", newer));
  facts.choices = config.size("num_experts_per_tok", otherwise.choices);
  return facts;
}

void refuse_bounds_of_steps(const HfConfig& config) {
  const auto bounds = config.bounds("time_step_limit");
  if (bounds && (bounds->first > 0 || !std::isinf(bounds->second)))
    config.refuse("time_step_limit", "[0, Infinity]");
}

void set_window(const HfConfig& config, ModelConfig& model, std::int64_t otherwise) {
  const char* key = "sliding_window";
  if (config.has(key)) model.window_before = config.size(key) - 1;
  if (!config.lists(key) && otherwise > 0) model.window_before = otherwise - 1;
}

void set_full_layers(const std::vector<std::string>& types, std::string_view word,
                     ModelConfig& model) {
  const auto full = std::ranges::find(types, word);
  model.full_attention_every = model.full_attention_first = 0;
  if (full == types.end()) return;
  const std::int64_t first = full - types.begin() + 1;
  const auto next = std::find(full + 1, types.end(), word);
  model.full_attention_every =
      next == types.end() ? std::max(first, std::ssize(types) - first + 1) : next - full;
  model.full_attention_first = first % model.full_attention_every;
}

void set_window_layers(const HfConfig& config, ModelConfig& model, const WindowDefaults& defaults) {
  set_window(config, model, defaults.window);
  if (!model.window_before) return;
  const std::vector<std::string> types = config.words("layer_types");
  if (types.empty()) {
    model.full_attention_every = defaults.full_every <= model.layers ? defaults.full_every : 0;
    if (model.full_attention_every > 0)
      model.full_attention_first = defaults.full_first % model.full_attention_every;
    return;
  }
  if (std::ssize(types) != model.layers) {
    config.refuse("layer_types",
                  fmt::format("types of {} layers (num_hidden_layers)", model.layers));
  }
  set_full_layers(types, "full_attention", model);
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    const bool window = model.window_of(static_cast<std::int64_t>(layer)).has_value();
    if (types[layer] != (window ? "sliding_attention" : "full_attention")) {
      config.refuse("layer_types",
                    "sliding_attention, and full_attention in layers with equal distances");
    }
  }
}

void drop_window_of_no_layer(ModelConfig& model) {
  if (model.full_attention_every != 1) return;
  model.window_before.reset();
  model.full_attention_every = 0;
}

void set_layers_without_positions(const HfConfig& config, ModelConfig& model) {
  const bool named = config.has("layer_types");
  set_window_layers(
      config, model,
      {.window = 4096, .full_every = named ? 0 : config.size("sliding_window_pattern", 4)});
  if (model.full_attention_first != 0) {
    config.refuse("layer_types",
                  "sliding_attention, and full_attention in every N-th layer for some N");
  }
  model.no_rotary_every = model.full_attention_every;
}

nlohmann::ordered_json window_layer_types(const ModelConfig& model) {
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    types.push_back(model.window_of(layer) ? "sliding_attention" : "full_attention");
  return types;
}

void set_residual_dropout(const HfConfig& config, double otherwise, ModelConfig& model) {
  model.hidden_dropout = config.number("resid_pdrop", otherwise);
  if (config.number("embd_pdrop", otherwise) != model.hidden_dropout)
    config.refuse("embd_pdrop", "the same as resid_pdrop");
}

void set_gpt2_sizes(const HfConfig& config, double dropout, ModelConfig& model) {
  model.layers = config.size("n_layer");
  model.hidden = config.size("n_embd");
  model.ffn_hidden = config.size("n_inner", 4 * model.hidden);
  model.heads = model.groups = config.size("n_head");
  if (model.hidden % model.heads != 0) config.refuse("n_head", "a divisor of n_embd");
  model.head_size = model.hidden / model.heads;
  model.vocabulary = config.size("vocab_size");
  model.max_positions = config.size("n_positions");
  model.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  model.activation = hf_activation(config, "activation_function", "gelu_new");
  set_residual_dropout(config, dropout, model);
  model.attention_dropout = config.number("attn_pdrop", dropout);
  model.init_deviation = config.number("initializer_range", 0.02);
}

nlohmann::ordered_json gpt2_size_keys(const ModelConfig& model) {
  return {{"n_layer", model.layers},
          {"n_embd", model.hidden},
          {"n_inner", model.ffn_hidden},
          {"n_head", model.heads},
          {"n_positions", model.max_positions},
          {"layer_norm_epsilon", model.norm_eps},
          {"activation_function", hf_activation_name(model.activation)},
          {"resid_pdrop", model.hidden_dropout},
          {"embd_pdrop", model.hidden_dropout},
          {"attn_pdrop", model.attention_dropout}};
}

ActivationKind hf_activation(const HfConfig& config, const std::string& key,
                             const std::string& otherwise) {
  const std::string name = config.word(key, otherwise);
  if (name == "silu" || name == "swish") return ActivationKind::kSilu;
  if (name == "gelu") return ActivationKind::kGeluErf;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return ActivationKind::kGeluTanh;
  if (name == "quick_gelu") return ActivationKind::kGeluFast;
  if (name == "relu") return ActivationKind::kRelu;
  if (name == "relu2") return ActivationKind::kSquaredRelu;
  config.refuse(key,
                "silu, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, quick_gelu, relu or relu2");
}

std::string hf_activation_name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kSilu:
      return "silu";
    case ActivationKind::kGeluErf:
      return "gelu";
    case ActivationKind::kGeluTanh:
      return "gelu_new";
    case ActivationKind::kGeluFast:
      return "quick_gelu";
    case ActivationKind::kRelu:
      return "relu";
    case ActivationKind::kSquaredRelu:
      return "relu2";
    case ActivationKind::kSigmoid:
    case ActivationKind::kIdentity:
      break;
  }
  return "";
}

nlohmann::ordered_json whole_rotary_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"].erase("partial_rotary_factor");
  if (model.heads * model.head_size == model.hidden) keys.erase("head_dim");
  return keys;
}

nlohmann::ordered_json window_key(const ModelConfig& model) {
  if (!model.window_before) return nullptr;
  return *model.window_before + 1;
}

nlohmann::ordered_json llama_like_keys(const ModelConfig& model) {
  return {{"num_hidden_layers", model.layers},
          {"hidden_size", model.hidden},
          {"intermediate_size", model.ffn_hidden},
          {"num_attention_heads", model.heads},
          {"num_key_value_heads", model.groups},
          {"head_dim", model.head_size},
          {"max_position_embeddings", model.max_positions},
          {"rms_norm_eps", model.norm_eps},
          {"hidden_act", hf_activation_name(model.activation)},
          {"attention_dropout", model.attention_dropout},
          {"rope_parameters", rope_keys(model)}};
}

namespace {

bool names_rotary_share(const HfConfig& config) {
  const auto names_it = [](const HfConfig& keys) { return keys.has("partial_rotary_factor"); };
  return names_it(config) || names_it(config.object("rope_parameters")) ||
         names_it(config.object("rope_scaling"));
}

}  // namespace

ModelConfig llama_like_model(const HfConfig& config, ModelConfig facts,
                             const LlamaLikeDefaults& defaults) {
  ModelConfig model = std::move(facts);
  model.layers = config.size("num_hidden_layers");
  model.hidden = config.size("hidden_size");
  model.ffn_hidden = config.size(defaults.ffn_hidden);
  model.heads = config.size("num_attention_heads");
  const auto or_else = [&](const char* key, std::int64_t absent, std::int64_t null) {
    return config.size(key, absent > 0 && !config.lists(key) ? absent : null);
  };
  model.groups = or_else("num_key_value_heads", defaults.groups, model.heads);
  model.head_size = or_else("head_dim", defaults.head_size, model.hidden / model.heads);
  if (!config.has("head_dim") && model.head_size * model.heads != model.hidden &&
      model.head_size != defaults.head_size)
    config.refuse("num_attention_heads", "a divisor of hidden_size");
  model.vocabulary = config.size("vocab_size");
  model.max_positions = config.size(defaults.longest);
  model.norm_eps = config.number("rms_norm_eps", defaults.norm_eps);
  model.activation = hf_activation(config, "hidden_act", "silu");
  model.attention_dropout = config.number("attention_dropout", 0.0);
  model.init_deviation = config.number("initializer_range", 0.02);
  model.tied = config.flag("tie_word_embeddings", false);
  set_rotary(config, model, defaults.rotary_base);
  if (!names_rotary_share(config)) model.rotary_share = defaults.rotary_share;
  return model;
}

std::vector<HfPlace> llama_like_places(const ModelConfig& model) {
  return named_places(model, llama_names());
}

}  // namespace piton
