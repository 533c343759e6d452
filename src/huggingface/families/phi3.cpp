
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// Phi-3 (Abdin et al. 2024, arXiv:2404.14219) is LLaMA with query, key and value in one matrix,
// gate and up in another, and a sliding window.
namespace piton {
namespace {

// Transformers has no other scaling in this family, and looks for the longest sequence before it in
// the outer key alone.
void set_angles(const HfConfig& config, ModelConfig& model) {
  using Kind = RotaryScaling::Kind;
  RotaryScaling& scaling = model.rotary_scaling;
  if (scaling.kind == Kind::kNone) return;
  const HfConfig rope = rotary_keys(config);
  if (scaling.kind != Kind::kLongrope)
    rope.refuse(rope.has("rope_type") ? "rope_type" : "type", "default or longrope");
  scaling.original_positions = config.size("original_max_position_embeddings", 4096);
  scaling.factor = longrope_factor(rope, model.max_positions, scaling.original_positions);
}

ModelConfig phi3_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, llama_facts(), {.norm_eps = 1e-5});
  set_angles(config, model);
  model.hidden_dropout = config.number("resid_pdrop", 0.0);
  if (config.number("embd_pdrop", 0.0) != model.hidden_dropout)
    config.refuse("embd_pdrop", "the same as resid_pdrop");
  set_window(config, model);
  return model;
}

nlohmann::ordered_json phi3_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys.erase("head_dim");
  keys["sliding_window"] = window_key(model);
  keys["resid_pdrop"] = keys["embd_pdrop"] = model.hidden_dropout;
  // Outside of the rotary parameters, because Transformers' own reader looks for it here.
  const RotaryScaling& scaling = model.rotary_scaling;
  keys["original_max_position_embeddings"] =
      scaling.original_positions > 0 ? scaling.original_positions : model.max_positions;
  return keys;
}

std::vector<HfPlace> phi3_places(const ModelConfig& model) {
  std::vector<HfPart> parts = packed_attention(model, "self_attn.qkv_proj.");
  parts.push_back({"mlp.gate.", "mlp.gate_up_proj."});
  parts.push_back({"mlp.up.", "mlp.gate_up_proj.", model.ffn_hidden});
  return named_places(model, llama_names(parts));
}

}  // namespace

HfFamily hf_phi3() {
  return {.model_types = {"phi3"},
          .architectures = {"Phi3ForCausalLM"},
          .model = phi3_model,
          .places = phi3_places,
          .keys = phi3_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
