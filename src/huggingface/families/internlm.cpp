
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// InternLM (2023) is LLaMA with biases in all four projections of attention. InternLM2 (Cai et al.
// 2024, arXiv:2403.17297) has query, key and value in one matrix, interleaved by group, and other
// names. InternLM3 (2025) has LLaMA's names again; Transformers computes it as LLaMA.
namespace piton {
namespace {

ModelConfig internlm2_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, llama_facts());
  refuse_partial_rotary(config, model);
  model.qkv_biases = model.output_bias = config.flag("bias", true);
  return model;
}

// "rotary" is an object: {"base": 10000, "type": "dynamic"}, or "origin".
ModelConfig internlm_model(const HfConfig& config) {
  ModelConfig model = internlm2_model(config);
  const HfConfig rotary = config.object("rotary");
  model.rotary_base = rotary.number("base", model.rotary_base);
  const std::string type = rotary.word("type", "origin");
  if (type == "dynamic") {
    model.rotary_scaling = {.kind = RotaryScaling::Kind::kDynamic,
                            .factor = rotary.number("scaling_factor", 1.0),
                            .original_positions = model.max_positions};
  } else if (type != "origin") {
    rotary.refuse("type", "origin or dynamic");
  }
  return model;
}

nlohmann::ordered_json internlm_shared_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  for (const char* key : {"head_dim", "attention_dropout", "rope_parameters"}) keys.erase(key);
  keys["bias"] = model.output_bias;
  return keys;
}

nlohmann::ordered_json internlm_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = internlm_shared_keys(model);
  keys.erase("num_key_value_heads");
  const RotaryScaling& scaling = model.rotary_scaling;
  nlohmann::ordered_json& rotary =
      keys["rotary"] = {{"base", model.rotary_base}, {"type", "origin"}};
  if (scaling.kind == RotaryScaling::Kind::kDynamic)
    rotary.update({{"type", "dynamic"}, {"scaling_factor", scaling.factor}});
  return keys;
}

nlohmann::ordered_json internlm2_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = internlm_shared_keys(model);
  keys["rope_theta"] = model.rotary_base;
  const RotaryScaling& scaling = model.rotary_scaling;
  if (scaling.kind == RotaryScaling::Kind::kDynamic)
    keys["rope_scaling"] = {{"type", "dynamic"}, {"factor", scaling.factor}};
  return keys;
}

// The authors' keys of biases have other names than those of Transformers.
ModelConfig internlm3_model(const HfConfig& config) {
  ModelConfig model =
      llama_like_model(config, llama_facts(), {.norm_eps = 1e-5, .groups = 2, .head_size = 128});
  refuse_partial_rotary(config, model);
  model.qkv_biases = config.flag("attention_bias", config.flag("qkv_bias", false));
  model.output_bias = model.biases = config.flag("mlp_bias", config.flag("bias", false));
  return model;
}

nlohmann::ordered_json internlm3_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["attention_bias"] = model.qkv_biases;
  keys["mlp_bias"] = model.biases;
  return keys;
}

std::vector<HfPlace> internlm2_places(const ModelConfig& model) {
  HfNames names{.table = "model.tok_embeddings.", .head = "output."};
  names.parts = grouped_attention(model, "attention.wqkv.");
  names.parts.insert(names.parts.end(), {{"attention_norm.", "attention_norm."},
                                         {"attention.output.", "attention.wo."},
                                         {"mlp_norm.", "ffn_norm."},
                                         {"mlp.gate.", "feed_forward.w1."},
                                         {"mlp.up.", "feed_forward.w3."},
                                         {"mlp.down.", "feed_forward.w2."}});
  return named_places(model, names);
}

}  // namespace

HfFamily hf_internlm() {
  return {.model_types = {"internlm"},
          .architectures = {"InternLMForCausalLM"},
          .model = internlm_model,
          .places = llama_like_places,
          .keys = internlm_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_internlm2() {
  return {.model_types = {"internlm2"},
          .architectures = {"InternLM2ForCausalLM"},
          .model = internlm2_model,
          .places = internlm2_places,
          .keys = internlm2_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_internlm3() {
  return {.model_types = {"internlm3"},
          .architectures = {"LlamaForCausalLM", "InternLM3ForCausalLM"},
          .model = internlm3_model,
          .places = llama_like_places,
          .keys = internlm3_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
