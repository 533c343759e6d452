#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// Bloom: query, key and value are one matrix, interleaved by head. Its configuration has no longest
// sequence; "seq_length" is that of training.
//
// MPT (MosaicML 2023) has ALiBi too, and no biases at all.
namespace piton {
namespace {

ModelConfig bloom_model(const HfConfig& config) {
  const auto either = [&](const char* name, const char* other) {
    return config.size(config.has(name) ? name : other);
  };
  ModelConfig model = bloom_facts();
  model.layers = either("n_layer", "num_hidden_layers");
  model.hidden = either("n_embed", "hidden_size");
  model.ffn_hidden = 4 * model.hidden;
  model.heads = model.groups = either("n_head", "num_attention_heads");
  if (model.hidden % model.heads != 0) config.refuse("n_head", "a divisor of hidden_size");
  model.head_size = model.hidden / model.heads;
  model.vocabulary = config.size("vocab_size");
  model.max_positions = config.size("seq_length", 2048);
  model.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  model.hidden_dropout = config.number("hidden_dropout", 0.0);
  model.attention_dropout = config.number("attention_dropout", 0.0);
  model.init_deviation = config.number("initializer_range", 0.02);
  model.tied = config.flag("tie_word_embeddings", true);
  if (config.flag("apply_residual_connection_post_layernorm", false))
    config.refuse("apply_residual_connection_post_layernorm", "false");
  return model;
}

nlohmann::ordered_json bloom_keys(const ModelConfig& model) {
  return {{"n_layer", model.layers},
          {"hidden_size", model.hidden},
          {"n_head", model.heads},
          {"seq_length", model.max_positions},
          {"layer_norm_epsilon", model.norm_eps},
          {"hidden_dropout", model.hidden_dropout},
          {"attention_dropout", model.attention_dropout}};
}

std::vector<HfPlace> bloom_places(const ModelConfig& model) {
  HfNames names{.table = "transformer.word_embeddings.",
                .table_norm = "transformer.word_embeddings_layernorm.",
                .layers = "transformer.h.",
                .final_norm = "transformer.ln_f."};
  names.parts = grouped_attention(model, "self_attention.query_key_value.");
  names.parts.insert(names.parts.end(), {{"attention_norm.", "input_layernorm."},
                                         {"attention.output.", "self_attention.dense."},
                                         {"mlp_norm.", "post_attention_layernorm."},
                                         {"mlp.up.", "mlp.dense_h_to_4h."},
                                         {"mlp.down.", "mlp.dense_4h_to_h."}});
  return named_places(model, names);
}

// Refuses what no published size has, or what Piton lacks.
void refuse_other_mpt(const HfConfig& config, const HfConfig& attention, std::int64_t heads) {
  const std::pair<const char*, double> numbers[] = {
      {"attn_pdrop", 0}, {"clip_qkv", 0}, {"alibi_bias_max", 8}};
  for (const auto& [key, value] : numbers)
    if (attention.number(key, value) != value) attention.refuse(key, fmt::format("{}", value));
  for (const char* key : {"prefix_lm", "qk_ln"})
    if (attention.flag(key, false)) attention.refuse(key, "false");
  if (!attention.flag("alibi", true)) attention.refuse("alibi", "true");
  const char* type = "attn_type";
  if (attention.word(type, "multihead_attention") != "multihead_attention")
    attention.refuse(type, "multihead_attention");
  if (config.number("expansion_ratio", 4.0) != 4) config.refuse("expansion_ratio", "4");
  if (!config.flag("no_bias", true)) config.refuse("no_bias", "true");
  if (config.has("logit_scale")) config.refuse("logit_scale", "null");
  // Slopes of other numbers of heads are in another order.
  if ((heads & (heads - 1)) != 0) config.refuse("n_heads", "a power of two");
}

ModelConfig mpt_model(const HfConfig& config) {
  ModelConfig model = gpt2_facts();
  model.positions = PositionKind::kAlibi;
  model.hidden_dropout = model.attention_dropout = 0;
  model.biases = model.qkv_biases = model.output_bias = model.norm_biases = false;
  model.activation = ActivationKind::kGeluErf;
  model.layers = config.size("n_layers", 24);
  model.hidden = config.size("d_model", 2048);
  model.ffn_hidden = 4 * model.hidden;
  model.heads = model.groups = config.size("n_heads", 16);
  if (model.hidden % model.heads != 0) config.refuse("n_heads", "a divisor of d_model");
  model.head_size = model.hidden / model.heads;
  model.vocabulary = config.size("vocab_size");
  model.max_positions = config.size("max_seq_len", 2048);
  model.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  model.init_deviation = config.number("initializer_range", 0.02);
  model.tied = config.flag("tie_word_embeddings", true);
  const HfConfig attention = config.object("attn_config");
  refuse_other_mpt(config, attention, model.heads);
  const double root = std::sqrt(static_cast<double>(model.head_size));
  const double scale = attention.number("softmax_scale", 1 / root);
  if (scale != 1 / root) model.score_factor = scale;
  return model;
}

nlohmann::ordered_json mpt_keys(const ModelConfig& model) {
  nlohmann::ordered_json attention{{"alibi", true}, {"softmax_scale", nullptr}};
  if (model.score_factor) attention["softmax_scale"] = *model.score_factor;
  return {{"n_layers", model.layers},
          {"d_model", model.hidden},
          {"n_heads", model.heads},
          {"expansion_ratio", 4},
          {"max_seq_len", model.max_positions},
          {"layer_norm_epsilon", model.norm_eps},
          {"no_bias", true},
          {"attn_config", attention}};
}

std::vector<HfPlace> mpt_places(const ModelConfig& model) {
  HfNames names{.table = "transformer.wte.",
                .layers = "transformer.blocks.",
                .final_norm = "transformer.norm_f."};
  names.parts = packed_attention(model, "attn.Wqkv.");
  names.parts.insert(names.parts.end(), {{"attention_norm.", "norm_1."},
                                         {"attention.output.", "attn.out_proj."},
                                         {"mlp_norm.", "norm_2."},
                                         {"mlp.up.", "ffn.up_proj."},
                                         {"mlp.down.", "ffn.down_proj."}});
  return named_places(model, names);
}

}  // namespace

HfFamily hf_bloom() {
  return {.model_types = {"bloom"},
          .architectures = {"BloomForCausalLM"},
          .model = bloom_model,
          .places = bloom_places,
          .keys = bloom_keys,
          .optional_prefix = "transformer.",
          .ignored = {}};
}

HfFamily hf_mpt() {
  return {.model_types = {"mpt"},
          .architectures = {"MptForCausalLM", "MPTForCausalLM"},
          .model = mpt_model,
          .places = mpt_places,
          .keys = mpt_keys,
          .optional_prefix = "transformer.",
          .ignored = {}};
}

}  // namespace piton
