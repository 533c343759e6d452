#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// Granite 3 (IBM 2024, github.com/ibm-granite/granite-3.0-language-models): LLaMA whose embedding,
// scores, branches and logits have factors, those of maximal update parametrization (Yang et al.
// 2022, arXiv:2203.03466). Granite 3 with experts ("granitemoe") has those of Mixtral, one upon
// another. Granite 4 ("granitemoehybrid") has layers of Mamba-2 in place of most of the attention,
// and gate and up in one matrix; next to experts there is an MLP that all tokens share, as in a
// test model of IBM with attention alone ("granitemoeshared"). Bamba (IBM 2024) has no factors and
// no experts, and rotary positions in half of each head.
namespace piton {
namespace {

void set_factors(const HfConfig& config, ModelConfig& model) {
  model.embedding_factor = config.number("embedding_multiplier", 1.0);
  model.branch_factor = config.number("residual_multiplier", 1.0);
  model.logit_divisor = config.number("logits_scaling", 1.0);
  const double scores = config.number("attention_multiplier", 1.0);
  model.score_factor.reset();
  if (scores != 1 / std::sqrt(static_cast<double>(model.head_size))) model.score_factor = scores;
}

void add_factors(const ModelConfig& model, nlohmann::ordered_json& keys) {
  keys["embedding_multiplier"] = model.embedding_factor;
  keys["residual_multiplier"] = model.branch_factor;
  keys["logits_scaling"] = model.logit_divisor;
  keys["attention_multiplier"] =
      model.score_factor.value_or(1 / std::sqrt(static_cast<double>(model.head_size)));
}

ModelConfig granite_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, granite_facts());
  refuse_partial_rotary(config, model);
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  model.biases = config.flag("mlp_bias", false);
  set_factors(config, model);
  return model;
}

nlohmann::ordered_json granite_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  keys["attention_bias"] = model.output_bias;
  keys["mlp_bias"] = model.biases;
  add_factors(model, keys);
  return keys;
}

// "mamba" and "attention", or the words of Transformers 5. Where no types are named, all layers are
// of Mamba.
std::vector<std::int64_t> layers_with_attention(const HfConfig& config, std::int64_t layers) {
  std::vector<std::int64_t> attention;
  const std::string key = "layer_types";
  const std::vector<std::string> types = config.words(key);
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    const std::string& type = types[layer];
    if (type == "attention" || type == "full_attention") {
      attention.push_back(static_cast<std::int64_t>(layer));
    } else if (type != "mamba" && type != "linear_attention") {
      config.refuse(key, "mamba or attention in each layer");
    }
  }
  if (!types.empty() && std::ssize(types) != layers)
    config.refuse(key, fmt::format("{} layers (num_hidden_layers)", layers));
  return attention;
}

StateSpaceFacts mamba_facts(const HfConfig& config, std::int64_t hidden) {
  StateSpaceFacts facts;
  facts.heads = config.size("mamba_n_heads", 128);
  facts.groups = config.size("mamba_n_groups", 1);
  facts.state_size = config.size("mamba_d_state", 256);
  facts.width = config.size("mamba_d_conv", 4);
  const std::int64_t values = config.size("mamba_expand", 2) * hidden;
  const bool follows = !config.has("mamba_d_head") || config.is_word("mamba_d_head", "auto");
  facts.head_size = follows ? values / facts.heads : config.size("mamba_d_head");
  if (facts.values() != values) {
    config.refuse("mamba_n_heads", fmt::format("heads of mamba_d_head channels that make "
                                               "mamba_expand times hidden_size, {}",
                                               values));
  }
  if (!config.flag("mamba_conv_bias", true)) config.refuse("mamba_conv_bias", "true");
  if (config.flag("mamba_proj_bias", false)) config.refuse("mamba_proj_bias", "false");
  refuse_bounds_of_steps(config);
  return facts;
}

ModelConfig granite4_model(const HfConfig& config) {
  const bool dense = config.number("num_local_experts", 8.0) == 0;
  const char* shared = "shared_intermediate_size";
  ModelConfig model = llama_like_model(config, granite_facts(),
                                       {.ffn_hidden = dense ? shared : "intermediate_size"});
  if (!dense) {
    model.experts = hf_experts(config, {.experts = 8, .choices = 2});
    model.experts->shared_ffn_hidden = config.size(shared, 1024);
  }
  std::vector<std::int64_t> attention = layers_with_attention(config, model.layers);
  if (std::ssize(attention) < model.layers) {
    model.state_space = mamba_facts(config, model.hidden);
    model.state_space->attention_layers = std::move(attention);
  }
  refuse_partial_rotary(config, model);
  const std::string positions = config.word("position_embedding_type", "nope");
  if (positions != "rope" && positions != "nope")
    config.refuse("position_embedding_type", "rope, nope or null");
  if (positions == "nope") {
    model.positions = PositionKind::kNone;
    model.rotary_base = ModelConfig{}.rotary_base;
    model.rotary_scaling = {};
  }
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  set_factors(config, model);
  return model;
}

void add_mamba_keys(const ModelConfig& model, nlohmann::ordered_json& keys) {
  keys["mamba_n_heads"] = 1;  // which Transformers checks, though there may be no such layer
  if (!model.state_space) return;
  const StateSpaceFacts& facts = *model.state_space;
  keys["mamba_n_heads"] = facts.heads;
  keys["mamba_d_head"] = facts.head_size;
  keys["mamba_n_groups"] = facts.groups;
  keys["mamba_d_state"] = facts.state_size;
  keys["mamba_d_conv"] = facts.width;
  keys["mamba_expand"] = facts.values() / model.hidden;
  keys["mamba_conv_bias"] = true;
  keys["mamba_proj_bias"] = false;
}

// With the words of IBM's files, which llama.cpp and older versions of Transformers know.
nlohmann::ordered_json granite4_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = granite_keys(model);
  keys.erase("mlp_bias");
  keys["shared_intermediate_size"] =
      model.experts ? model.experts->shared_ffn_hidden : model.ffn_hidden;
  keys["num_local_experts"] = model.experts ? model.experts->experts : 0;
  keys["num_experts_per_tok"] = model.experts ? model.experts->choices : 0;
  add_mamba_keys(model, keys);
  const bool rotates = model.positions == PositionKind::kRotary;
  if (rotates) keys["position_embedding_type"] = "rope";
  if (!rotates) keys.erase("rope_parameters");
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    types.push_back(model.has_states(layer) ? "mamba" : "attention");
  keys["layer_types"] = std::move(types);
  return keys;
}

// Experts of Granite are one upon another.
std::vector<HfPart> stacked_experts(const ModelConfig& model) {
  const std::int64_t f = model.expert_ffn_hidden();
  const HfPart both{.name = "block_sparse_moe.input_linear.",
                    .stacks = model.experts->experts,
                    .expert_rows = 2 * f};
  HfPart gate = both, up = both;
  gate.canonical = "mlp.experts.E.gate.";
  up.canonical = "mlp.experts.E.up.";
  up.first = f;
  return {{"mlp.router.weight", "block_sparse_moe.router.layer."},
          gate,
          up,
          {.canonical = "mlp.experts.E.down.",
           .name = "block_sparse_moe.output_linear.",
           .stacks = model.experts->experts,
           .expert_rows = model.hidden}};
}

// The MLP of all layers, or what all tokens share next to experts.
std::vector<HfPart> granite_mlp(const ModelConfig& model) {
  const std::string mlp = model.experts ? "mlp.shared." : "mlp.";
  const std::int64_t width = model.experts ? model.experts->shared_ffn_hidden : model.ffn_hidden;
  return {{mlp + "gate.", "shared_mlp.input_linear."},
          {mlp + "up.", "shared_mlp.input_linear.", width},
          {mlp + "down.", "shared_mlp.output_linear."}};
}

std::vector<HfPlace> granite4_places(const ModelConfig& model) {
  std::vector<HfPart> parts = granite_mlp(model);
  const auto add = [&](std::vector<HfPart> more) {
    for (HfPart& part : more) parts.push_back(std::move(part));
  };
  if (model.experts) add(stacked_experts(model));
  if (model.state_space) add(state_space_parts(*model.state_space, "mamba."));
  return named_places(model, llama_names(std::move(parts)));
}

ModelConfig granite_moe_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, granite_facts());
  refuse_partial_rotary(config, model);
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  model.experts = hf_experts(config, {.experts = 8, .choices = 2});
  set_factors(config, model);
  return model;
}

nlohmann::ordered_json granite_moe_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = granite_keys(model);
  keys.erase("mlp_bias");
  if (!model.experts) return keys;
  keys["num_local_experts"] = model.experts->experts;
  keys["num_experts_per_tok"] = model.experts->choices;
  return keys;
}

std::vector<HfPlace> granite_moe_places(const ModelConfig& model) {
  return named_places(model, llama_names(stacked_experts(model)));
}

ModelConfig granite_moe_shared_model(const HfConfig& config) {
  ModelConfig model = granite_moe_model(config);
  const char* shared = "shared_intermediate_size";
  if (config.number(shared, 0.0) != 0) model.experts->shared_ffn_hidden = config.size(shared);
  return model;
}

nlohmann::ordered_json granite_moe_shared_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = granite_moe_keys(model);
  if (model.experts) keys["shared_intermediate_size"] = model.experts->shared_ffn_hidden;
  return keys;
}

ModelConfig bamba_model(const HfConfig& config) {
  const char* share = "partial_rotary_factor";
  if (config.number(share, 0.5) != 0.5) config.refuse(share, "0.5");
  ModelConfig model =
      llama_like_model(config, llama_facts(), {.norm_eps = 1e-5, .groups = 8, .rotary_share = 0.5});
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  model.biases = config.flag("mlp_bias", false);
  const char* turned = "attn_rotary_emb";  // of the authors, which Transformers does not read
  if (config.size(turned, model.rotary_channels()) != model.rotary_channels())
    config.refuse(turned, fmt::format("{}, the rotated channels", model.rotary_channels()));
  if (config.number("z_loss_coefficient", 0.0) != 0) config.refuse("z_loss_coefficient", "0");
  const char* key = "attn_layer_indices";
  std::vector<std::int64_t> attention;
  for (const double layer : config.numbers(key)) {
    if (layer < 0 || layer >= static_cast<double>(model.layers) || layer != std::floor(layer))
      config.refuse(key, "layers of the model");
    attention.push_back(static_cast<std::int64_t>(layer));
  }
  std::ranges::sort(attention);
  const auto same = std::ranges::unique(attention);
  attention.erase(same.begin(), same.end());
  if (std::ssize(attention) == model.layers) config.refuse(key, "not all layers");
  model.state_space = mamba_facts(config, model.hidden);
  model.state_space->attention_layers = std::move(attention);
  return model;
}

nlohmann::ordered_json bamba_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  keys["rope_parameters"]["partial_rotary_factor"] = model.rotary_share;
  keys["attention_bias"] = model.output_bias;
  keys["mlp_bias"] = model.biases;
  add_mamba_keys(model, keys);
  if (model.state_space) keys["attn_layer_indices"] = model.state_space->attention_layers;
  return keys;
}

std::vector<HfPlace> bamba_places(const ModelConfig& model) {
  std::vector<HfPart> parts{{"mlp_norm.", "pre_ff_layernorm."},
                            {"mlp.gate.", "feed_forward.gate_proj."},
                            {"mlp.up.", "feed_forward.up_proj."},
                            {"mlp.down.", "feed_forward.down_proj."}};
  if (model.state_space)
    for (HfPart& part : state_space_parts(*model.state_space, "mamba.")) parts.push_back(part);
  HfNames names = llama_names(std::move(parts));
  names.final_norm = "model.final_layernorm.";
  return named_places(model, names);
}

}  // namespace

HfFamily hf_granite() {
  return {.model_types = {"granite"},
          .architectures = {"GraniteForCausalLM"},
          .model = granite_model,
          .places = llama_like_places,
          .keys = granite_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_granite_moe() {
  return {.model_types = {"granitemoe"},
          .architectures = {"GraniteMoeForCausalLM"},
          .model = granite_moe_model,
          .places = granite_moe_places,
          .keys = granite_moe_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_granite4() {
  return {.model_types = {"granitemoehybrid"},
          .architectures = {"GraniteMoeHybridForCausalLM"},
          .model = granite4_model,
          .places = granite4_places,
          .keys = granite4_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_granite_moe_shared() {
  return {.model_types = {"granitemoeshared"},
          .architectures = {"GraniteMoeSharedForCausalLM"},
          .model = granite_moe_shared_model,
          .places = granite4_places,
          .keys = granite_moe_shared_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_bamba() {
  return {.model_types = {"bamba"},
          .architectures = {"BambaForCausalLM"},
          .model = bamba_model,
          .places = bamba_places,
          .keys = bamba_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
