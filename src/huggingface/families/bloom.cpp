
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// Bloom: query, key and value are one matrix, interleaved by head. Its configuration has no longest
// sequence; "seq_length" is that of training.
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

}  // namespace piton
