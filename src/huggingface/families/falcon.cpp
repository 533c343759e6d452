
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// Falcon (Almazrouei et al. 2023, arXiv:2311.16867): a parallel residual without biases. The 7B
// model has one key-value head and one norm a block; larger ones ("new_decoder_architecture") have
// groups of heads, and one norm or two.
namespace piton {
namespace {

// Transformers ignores "num_kv_heads" and "num_ln_in_parallel_attn" without the new architecture.
void set_branches(const HfConfig& config, ModelConfig& model) {
  const bool newer = config.flag("new_decoder_architecture", false);
  model.groups = newer                              ? config.size("num_kv_heads", model.heads)
                 : config.flag("multi_query", true) ? 1
                                                    : model.heads;
  if (!config.flag("parallel_attn", true)) {
    if (newer) config.refuse("parallel_attn", "true with new_decoder_architecture");
    model.parallel_residual = false;
    model.family = gpt2_facts().family;  // flags can say it of that
    return;
  }
  const std::int64_t norms = newer ? config.size("num_ln_in_parallel_attn", 2) : 1;
  if (norms > 2) config.refuse("num_ln_in_parallel_attn", "1 or 2");
  model.single_norm = norms == 1;
}

ModelConfig falcon_model(const HfConfig& config) {
  ModelConfig model = gpt_neox_facts();
  model.layers = config.size("num_hidden_layers");
  model.hidden = config.size("hidden_size");
  model.ffn_hidden = config.size("ffn_hidden_size", 4 * model.hidden);
  model.heads = config.size("num_attention_heads");
  if (model.hidden % model.heads != 0)
    config.refuse("num_attention_heads", "a divisor of hidden_size");
  model.head_size = model.hidden / model.heads;
  model.vocabulary = config.size("vocab_size");
  model.max_positions = config.size("max_position_embeddings", 2048);
  model.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  model.activation = hf_activation(config, "activation", "gelu");
  model.biases = model.qkv_biases = model.output_bias = config.flag("bias", false);
  model.init_deviation = config.number("initializer_range", 0.02);
  model.tied = config.flag("tie_word_embeddings", true);
  if (config.flag("alibi", false)) config.refuse("alibi", "false");
  for (const char* key : {"hidden_dropout", "attention_dropout"}) {
    if (config.number(key, 0.0) != 0) config.refuse(key, "0.0");
  }
  set_rotary(config, model);
  refuse_partial_rotary(config, model);
  set_branches(config, model);
  return model;
}

nlohmann::ordered_json falcon_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = {{"num_hidden_layers", model.layers},
                                 {"hidden_size", model.hidden},
                                 {"ffn_hidden_size", model.ffn_hidden},
                                 {"num_attention_heads", model.heads},
                                 {"max_position_embeddings", model.max_positions},
                                 {"layer_norm_epsilon", model.norm_eps},
                                 {"activation", hf_activation_name(model.activation)},
                                 {"bias", model.biases},
                                 {"alibi", false},
                                 {"parallel_attn", model.parallel_residual},
                                 {"rope_parameters", llama_like_keys(model)["rope_parameters"]}};
  const bool multi_query = model.groups == 1;
  const bool older = !model.parallel_residual ||
                     (model.single_norm && (multi_query || model.groups == model.heads));
  keys["new_decoder_architecture"] = !older;
  keys["multi_query"] = multi_query;
  if (older) return keys;
  keys["num_kv_heads"] = model.groups;
  keys["num_ln_in_parallel_attn"] = model.single_norm ? 1 : 2;
  return keys;
}

std::vector<HfPlace> falcon_places(const ModelConfig& model) {
  HfNames names{.table = "transformer.word_embeddings.",
                .layers = "transformer.h.",
                .final_norm = "transformer.ln_f."};
  const bool two_norms = model.parallel_residual && !model.single_norm;
  names.parts = grouped_attention(model, "self_attention.query_key_value.");
  names.parts.insert(names.parts.end(),
                     {{"attention_norm.", two_norms ? "ln_attn." : "input_layernorm."},
                      {"attention.output.", "self_attention.dense."},
                      {"mlp_norm.", two_norms ? "ln_mlp." : "post_attention_layernorm."},
                      {"mlp.up.", "mlp.dense_h_to_4h."},
                      {"mlp.down.", "mlp.dense_4h_to_h."}});
  return named_places(model, names);
}

}  // namespace

HfFamily hf_falcon() {
  return {.model_types = {"falcon"},
          .architectures = {"FalconForCausalLM"},
          .model = falcon_model,
          .places = falcon_places,
          .keys = falcon_keys,
          .optional_prefix = "transformer.",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
