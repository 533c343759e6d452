#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// Qwen3-Next: layers with the gated delta rule and, every fourth one, with attention that has a
// gate; experts as Qwen 2 MoE has them. Qwen 3.5 is the same, without experts or with them, and its
// files have separate matrices where those of Qwen3-Next are interleaved by heads of keys.
namespace piton {
namespace {

constexpr std::int64_t kAttentionEvery = 4;
// How many layers predict later tokens; Qwen3-Next has one without a word. Transformers reads none.
constexpr const char* kLaterLayersOfQwen = "mtp_num_hidden_layers";

// A list of the kinds of layers, else every N-th layer has attention.
void set_layer_types(const HfConfig& config, ModelConfig& model) {
  const std::vector<std::string> types = config.words("layer_types");
  std::int64_t every = config.size("full_attention_interval", kAttentionEvery);
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] != "full_attention") continue;
    every = static_cast<std::int64_t>(layer) + 1;
    break;
  }
  model.delta->attention_every = every;
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    const bool states = model.has_states(static_cast<std::int64_t>(layer));
    if (types[layer] != (states ? "linear_attention" : "full_attention")) {
      config.refuse("layer_types",
                    "linear_attention, and full_attention in every N-th layer for some N");
    }
  }
}

ModelConfig next_model(const HfConfig& config, const ModelConfig& facts,
                       const LlamaLikeDefaults& defaults) {
  ModelConfig model = llama_like_model(config, facts, defaults);
  model.output_bias = model.qkv_biases = config.flag("attention_bias", false);
  DeltaFacts& delta = *model.delta;
  delta.key_heads = config.size("linear_num_key_heads", delta.key_heads);
  delta.value_heads = config.size("linear_num_value_heads", delta.value_heads);
  delta.key_size = config.size("linear_key_head_dim", delta.key_size);
  delta.value_size = config.size("linear_value_head_dim", delta.value_size);
  delta.width = config.size("linear_conv_kernel_dim", delta.width);
  set_layer_types(config, model);
  return model;
}

ModelConfig qwen3_5_model(const HfConfig& config) {
  return next_model(config, qwen3_5_facts(), {.groups = 4, .head_size = 256, .rotary_share = 0.25});
}

ModelConfig qwen3_next_model(const HfConfig& config) {
  ModelConfig model =
      next_model(config, qwen3_next_facts(), {.groups = 2, .head_size = 256, .rotary_share = 0.25});
  set_qwen_experts(config, model, {.experts = 512, .choices = 10, .ffn_hidden = 512});
  model.experts->normalized = config.flag("norm_topk_prob", true);
  model.experts->shared_ffn_hidden = config.size("shared_expert_intermediate_size", 512);
  model.experts->shared_gate = true;
  return model;
}

// Its weights of experts always add up to 1, and all layers have experts.
ModelConfig qwen3_5_moe_model(const HfConfig& config) {
  ModelConfig model = next_model(
      config, qwen3_next_facts(),
      {.groups = 2, .head_size = 256, .ffn_hidden = "moe_intermediate_size", .rotary_share = 0.25});
  set_qwen_experts(config, model, {.experts = 256, .choices = 8, .ffn_hidden = 512});
  model.experts->normalized = true;
  model.experts->shared_ffn_hidden = config.size("shared_expert_intermediate_size", 512);
  model.experts->shared_gate = true;
  return model;
}

// The query and the gate of each head are next to each other.
std::vector<HfPart> gated_attention(const ModelConfig& model) {
  const std::int64_t d = model.head_size;
  return {{"attention.query.", "self_attn.q_proj.", 0, d, 2 * d},
          {"attention.gate.", "self_attn.q_proj.", d, d, 2 * d}};
}

// What both versions have in the same form. A filter is a matrix [1, w] of each channel.
std::vector<HfPart> delta_parts(const DeltaFacts& facts) {
  const std::int64_t keys = facts.key_heads * facts.key_size;
  const auto filter = [&](const char* canonical, std::int64_t first) {
    return HfPart{.canonical = canonical,
                  .name = "linear_attn.conv1d.weight",
                  .first = first,
                  .stacks = facts.convolved(),
                  .complete = true};
  };
  return {filter("delta.query_filter", 0),
          filter("delta.key_filter", keys),
          filter("delta.value_filter", 2 * keys),
          {.canonical = "delta.rate", .name = "linear_attn.A_log", .complete = true},
          {.canonical = "delta.decay_bias", .name = "linear_attn.dt_bias", .complete = true},
          {"delta.norm.", "linear_attn.norm."},
          {"delta.output.", "linear_attn.out_proj."}};
}

HfNames next_names(const ModelConfig& model, std::vector<HfPart> parts) {
  for (HfPart& part : gated_attention(model)) parts.push_back(std::move(part));
  for (HfPart& part : delta_parts(*model.delta)) parts.push_back(std::move(part));
  HfNames names = llama_names(std::move(parts));
  names.later_layers = "mtp.layers.";
  names.later_ends = {{"token_norm.", "mtp.pre_fc_norm_embedding."},
                      {"hidden_norm.", "mtp.pre_fc_norm_hidden."},
                      {"projection.", "mtp.fc."},
                      {"final_norm.", "mtp.norm."}};
  return names;
}

std::vector<HfPart> qwen3_5_parts(const ModelConfig& model) {
  const DeltaFacts& facts = *model.delta;
  const std::int64_t keys = facts.key_heads * facts.key_size;
  return {{"delta.query.", "linear_attn.in_proj_qkv."},
          {"delta.key.", "linear_attn.in_proj_qkv.", keys},
          {"delta.value.", "linear_attn.in_proj_qkv.", 2 * keys},
          {"delta.gate.", "linear_attn.in_proj_z."},
          {"delta.strength.", "linear_attn.in_proj_b."},
          {"delta.decay.", "linear_attn.in_proj_a."}};
}

std::vector<HfPlace> qwen3_5_places(const ModelConfig& model) {
  return named_places(model, next_names(model, qwen3_5_parts(model)));
}

// As Qwen publishes its experts; Transformers saves each of them by itself.
std::vector<HfPlace> qwen3_5_stacked_places(const ModelConfig& model) {
  const std::int64_t f = model.expert_ffn_hidden();
  const HfPart both{.name = "mlp.experts.gate_up_proj",
                    .stacks = model.experts->experts,
                    .expert_rows = 2 * f,
                    .complete = true};
  HfPart gate = both, up = both, down = both;
  gate.canonical = "mlp.experts.E.gate.weight";
  up.canonical = "mlp.experts.E.up.weight";
  up.first = f;
  down.canonical = "mlp.experts.E.down.weight";
  down.name = "mlp.experts.down_proj";
  down.expert_rows = model.hidden;
  std::vector<HfPart> parts = qwen3_5_parts(model);
  for (const HfPart& part : {gate, up, down}) parts.push_back(part);
  return named_places(model, next_names(model, std::move(parts)));
}

std::vector<HfPlace> qwen3_next_places(const ModelConfig& model) {
  const DeltaFacts& facts = *model.delta;
  const std::int64_t d = facts.key_size;
  const std::int64_t shared = facts.value_heads / facts.key_heads;
  const std::int64_t values = shared * facts.value_size;
  const std::int64_t of_head = 2 * d + 2 * values;
  const char* all = "linear_attn.in_proj_qkvz.";
  const char* gates = "linear_attn.in_proj_ba.";
  return named_places(model,
                      next_names(model, {{"delta.query.", all, 0, d, of_head},
                                         {"delta.key.", all, d, d, of_head},
                                         {"delta.value.", all, 2 * d, values, of_head},
                                         {"delta.gate.", all, 2 * d + values, values, of_head},
                                         {"delta.strength.", gates, 0, shared, 2 * shared},
                                         {"delta.decay.", gates, shared, shared, 2 * shared}}));
}

nlohmann::ordered_json next_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["attention_bias"] = model.output_bias;
  if (!model.delta) return keys;
  const DeltaFacts& facts = *model.delta;
  keys["linear_num_key_heads"] = facts.key_heads;
  keys["linear_num_value_heads"] = facts.value_heads;
  keys["linear_key_head_dim"] = facts.key_size;
  keys["linear_value_head_dim"] = facts.value_size;
  keys["linear_conv_kernel_dim"] = facts.width;
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    types.push_back(model.has_states(layer) ? "linear_attention" : "full_attention");
  keys["layer_types"] = std::move(types);
  if (model.mtp_layers > 0) keys[kLaterLayersOfQwen] = model.mtp_layers;
  return keys;
}

nlohmann::ordered_json qwen3_5_moe_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = next_keys(model);
  if (!model.experts) return keys;
  const ExpertFacts& facts = *model.experts;
  keys["num_experts"] = facts.experts;
  keys["num_experts_per_tok"] = facts.choices;
  keys["moe_intermediate_size"] = model.expert_ffn_hidden();
  if (facts.shared_ffn_hidden != 0)
    keys["shared_expert_intermediate_size"] = facts.shared_ffn_hidden;
  return keys;
}

nlohmann::ordered_json qwen3_next_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = qwen3_5_moe_keys(model);
  if (!model.experts) return keys;
  keys["decoder_sparse_step"] = 1;
  keys["mlp_only_layers"] = model.experts->dense_layers;
  keys["norm_topk_prob"] = model.experts->normalized;
  return keys;
}

}  // namespace

HfFamily hf_qwen3_5() {
  return {.model_types = {"qwen3_5_text"},
          .architectures = {"Qwen3_5ForCausalLM"},
          .model = qwen3_5_model,
          .places = qwen3_5_places,
          .keys = next_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"},
          .ignored_beginnings = {"mtp."},
          .later_layers = kLaterLayersOfQwen,
          .uncounted_later_layers = 1,
          .most_later_layers = 1};
}

HfFamily hf_qwen3_5_moe() {
  return {.model_types = {"qwen3_5_moe_text"},
          .architectures = {"Qwen3_5MoeForCausalLM"},
          .model = qwen3_5_moe_model,
          .places = qwen3_5_places,
          .keys = qwen3_5_moe_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"},
          .ignored_beginnings = {"mtp."},
          .stacked_places = qwen3_5_stacked_places};
}

HfFamily hf_qwen3_next() {
  return {.model_types = {"qwen3_next"},
          .architectures = {"Qwen3NextForCausalLM"},
          .model = qwen3_next_model,
          .places = qwen3_next_places,
          .keys = qwen3_next_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"},
          .ignored_beginnings = {"mtp."},
          .later_layers = kLaterLayersOfQwen,
          .uncounted_later_layers = 1,
          .most_later_layers = 1};
}

}  // namespace piton
