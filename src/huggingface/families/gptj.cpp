#include <cmath>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// GPT-J (Wang & Komatsuzaki 2021, github.com/kingoflolz/mesh-transformer-jax): both branches have
// one norm, rotary positions of interleaved channels in a part of each head, no biases in
// attention, a head with a bias. Phi-1 to Phi-2 (Gunasekar et al. 2023, arXiv:2306.11644) have the
// same blocks with biases everywhere and with channels in halves.
namespace piton {
namespace {

// The share of a head by which rotary_channels() is `channels`, whatever rounding does.
double rotary_share_of(std::int64_t channels, std::int64_t head_size) {
  double share = static_cast<double>(channels) / static_cast<double>(head_size);
  while (static_cast<std::int64_t>(share * static_cast<double>(head_size)) < channels)
    share = std::nextafter(share, 2.0);
  return share;
}

ModelConfig gptj_model(const HfConfig& config) {
  ModelConfig model = gptj_facts();
  set_gpt2_sizes(config, 0.0, model);
  model.tied = config.flag("tie_word_embeddings", false);
  if (config.lists("rotary_dim") && !config.has("rotary_dim"))
    config.refuse("rotary_dim", "a number of channels");
  const std::int64_t channels = config.size("rotary_dim", 64);
  if (channels > model.head_size || channels % 2 != 0)
    config.refuse("rotary_dim", "an even number, at most n_embd over n_head");
  model.rotary_share = rotary_share_of(channels, model.head_size);
  return model;
}

nlohmann::ordered_json gptj_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = gpt2_size_keys(model);
  keys["rotary_dim"] = model.rotary_channels();
  return keys;
}

std::vector<HfPlace> gptj_places(const ModelConfig& model) {
  HfNames names{
      .table = "transformer.wte.", .layers = "transformer.h.", .final_norm = "transformer.ln_f."};
  names.parts = {{"attention_norm.", "ln_1."},
                 {"attention.query.", "attn.q_proj."},
                 {"attention.key.", "attn.k_proj."},
                 {"attention.value.", "attn.v_proj."},
                 {"attention.output.", "attn.out_proj."},
                 {"mlp.up.", "mlp.fc_in."},
                 {"mlp.down.", "mlp.fc_out."}};
  return named_places(model, names);
}

ModelConfig phi_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, phi_facts(), {.rotary_share = 0.5});
  model.norm_eps = config.number("layer_norm_eps", 1e-5);
  model.activation = hf_activation(config, "hidden_act", "gelu_new");
  set_residual_dropout(config, 0.0, model);
  if (config.flag("qk_layernorm", false)) config.refuse("qk_layernorm", "false");
  return model;
}

nlohmann::ordered_json phi_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys.erase("rms_norm_eps");
  if (model.heads * model.head_size == model.hidden) keys.erase("head_dim");
  keys["layer_norm_eps"] = model.norm_eps;
  keys["resid_pdrop"] = keys["embd_pdrop"] = model.hidden_dropout;
  keys["rope_parameters"]["partial_rotary_factor"] = model.rotary_share;  // without it a half
  keys["qk_layernorm"] = false;
  return keys;
}

std::vector<HfPlace> phi_places(const ModelConfig& model) {
  HfNames names = llama_names({{"attention.output.", "self_attn.dense."},
                               {"mlp.up.", "mlp.fc1."},
                               {"mlp.down.", "mlp.fc2."}});
  names.final_norm = "model.final_layernorm.";
  return named_places(model, names);
}

}  // namespace

HfFamily hf_gptj() {
  return {.model_types = {"gptj"},
          .architectures = {"GPTJForCausalLM"},
          .model = gptj_model,
          .places = gptj_places,
          .keys = gptj_keys,
          .optional_prefix = "transformer.",
          .ignored = {".attn.bias", ".attn.masked_bias", ".attn.embed_positions"}};
}

HfFamily hf_phi() {
  return {.model_types = {"phi"},
          .architectures = {"PhiForCausalLM"},
          .model = phi_model,
          .places = phi_places,
          .keys = phi_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
