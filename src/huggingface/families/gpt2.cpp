
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// GPT-2: weights are those of Conv1D, [in, out]; query, key and value are thirds of one matrix.
namespace piton {
namespace {

ModelConfig gpt2_model(const HfConfig& config) {
  ModelConfig model = gpt2_facts();
  set_gpt2_sizes(config, 0.1, model);
  model.tied = config.flag("tie_word_embeddings", true);
  if (!config.flag("scale_attn_weights", true)) config.refuse("scale_attn_weights", "true");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (config.flag(key, false)) config.refuse(key, "false");
  }
  return model;
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
          .keys = gpt2_size_keys,
          .optional_prefix = "transformer.",
          .ignored = {".attn.bias", ".attn.masked_bias"}};
}

}  // namespace piton
