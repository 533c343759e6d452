
#include "base/json.h"
#include "huggingface/families.h"
#include "huggingface/llama_like.h"
#include "model/families.h"

// GPT-2: weights are those of Conv1D, [in, out]; query, key and value are thirds of one matrix.
namespace piton {
namespace {

ModelConfig gpt2_model(const HfConfig& config) {
  ModelConfig model = gpt2_facts();
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
  model.hidden_dropout = config.number("resid_pdrop", 0.1);
  if (config.number("embd_pdrop", 0.1) != model.hidden_dropout)
    config.refuse("embd_pdrop", "the same as resid_pdrop");
  model.attention_dropout = config.number("attn_pdrop", 0.1);
  model.init_deviation = config.number("initializer_range", 0.02);
  model.tied = config.flag("tie_word_embeddings", true);
  if (!config.flag("scale_attn_weights", true)) config.refuse("scale_attn_weights", "true");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (config.flag(key, false)) config.refuse(key, "false");
  }
  return model;
}

nlohmann::ordered_json gpt2_keys(const ModelConfig& model) {
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

std::vector<HfPlace> gpt2_places(const ModelConfig& model) {
  std::vector<HfPlace> places;
  const auto add = [&](const std::string& canonical, const std::string& name) {
    places.push_back({.canonical = canonical, .name = "transformer." + name});
  };
  const auto norm = [&](const std::string& canonical, const std::string& name) {
    add(canonical + ".weight", name + ".weight");
    add(canonical + ".bias", name + ".bias");
  };
  const auto conv = [&](const std::string& canonical, const std::string& name,
                        std::int64_t first = 0) {
    norm(canonical, name);
    for (std::size_t i = places.size() - 2; i < places.size(); ++i) places[i].first = first;
    places[places.size() - 2].transposed = true;
  };
  add("embedding.token.weight", "wte.weight");
  add("embedding.position.weight", "wpe.weight");
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string at = fmt::format("layers.{}.", layer);
    const std::string in = fmt::format("h.{}.", layer);
    norm(at + "attention_norm", in + "ln_1");
    conv(at + "attention.query", in + "attn.c_attn");
    conv(at + "attention.key", in + "attn.c_attn", model.hidden);
    conv(at + "attention.value", in + "attn.c_attn", 2 * model.hidden);
    conv(at + "attention.output", in + "attn.c_proj");
    norm(at + "mlp_norm", in + "ln_2");
    conv(at + "mlp.up", in + "mlp.c_fc");
    conv(at + "mlp.down", in + "mlp.c_proj");
  }
  norm("final_norm", "ln_f");
  places.push_back({.canonical = "head.weight", .name = "lm_head.weight"});
  return places;
}

}  // namespace

HfFamily hf_gpt2() {
  return {.model_types = {"gpt2"},
          .architectures = {"GPT2LMHeadModel"},
          .model = gpt2_model,
          .places = gpt2_places,
          .keys = gpt2_keys,
          .optional_prefix = "transformer.",
          .ignored = {".attn.bias", ".attn.masked_bias"}};
}

}  // namespace piton
