#include "huggingface/families.h"
#include "huggingface/llama_like.h"
#include "huggingface/names.h"
#include "model/families.h"

// InternLM (2023) is LLaMA with biases of all four projections of attention. InternLM2 (Cai et al.
// 2024, arXiv:2403.17297) has one matrix of query, key and value, each group in turn, and names of
// its own.
namespace piton {
namespace {

ModelConfig internlm_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, llama_facts());
  model.qkv_biases = model.output_bias = config.flag("bias", true);
  return model;
}

ModelConfig internlm2_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, llama_facts());
  model.qkv_biases = model.output_bias = config.flag("bias", true);
  return model;
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
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_internlm2() {
  return {.model_types = {"internlm2"},
          .architectures = {"InternLM2ForCausalLM"},
          .model = internlm2_model,
          .places = internlm2_places,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
