
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// GPT-NeoX and Pythia: query, key and value are one matrix, interleaved by head. Transformers 4 has
// separate keys for rotary positions.
namespace piton {
namespace {

ModelConfig gpt_neox_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, gpt_neox_facts(),
                                       {.rotary_base = config.number("rotary_emb_base", 10000.0),
                                        .rotary_share = config.number("rotary_pct", 0.25)});
  // The keys of other families change nothing.
  model.groups = model.heads;
  model.head_size = model.hidden / model.heads;
  model.norm_eps = config.number("layer_norm_eps", 1e-5);
  model.activation = hf_activation(config, "hidden_act", "gelu");
  model.hidden_dropout = config.number("hidden_dropout", 0.0);
  model.parallel_residual = config.flag("use_parallel_residual", true);
  if (!model.parallel_residual) model.family = gpt2_facts().family;  // flags can say it of that
  model.qkv_biases = model.output_bias = config.flag("attention_bias", true);
  return model;
}

nlohmann::ordered_json gpt_neox_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  for (const char* key : {"rms_norm_eps", "head_dim", "num_key_value_heads"}) keys.erase(key);
  keys["layer_norm_eps"] = model.norm_eps;
  keys["hidden_dropout"] = model.hidden_dropout;
  keys["use_parallel_residual"] = model.parallel_residual;
  keys["attention_bias"] = model.output_bias;
  keys["rope_parameters"]["partial_rotary_factor"] = model.rotary_share;  // without it a quarter
  return keys;
}

std::vector<HfPlace> gpt_neox_places(const ModelConfig& model) {
  HfNames names{.table = "gpt_neox.embed_in.",
                .layers = "gpt_neox.layers.",
                .final_norm = "gpt_neox.final_layer_norm.",
                .head = "embed_out."};
  names.parts = grouped_attention(model, "attention.query_key_value.");
  names.parts.insert(names.parts.end(), {{"attention_norm.", "input_layernorm."},
                                         {"attention.output.", "attention.dense."},
                                         {"mlp_norm.", "post_attention_layernorm."},
                                         {"mlp.up.", "mlp.dense_h_to_4h."},
                                         {"mlp.down.", "mlp.dense_4h_to_h."}});
  return named_places(model, names);
}

}  // namespace

HfFamily hf_gpt_neox() {
  return {.model_types = {"gpt_neox"},
          .architectures = {"GPTNeoXForCausalLM"},
          .model = gpt_neox_model,
          .places = gpt_neox_places,
          .keys = gpt_neox_keys,
          .optional_prefix = "",
          .ignored = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"}};
}

}  // namespace piton
