
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// Baichuan (2023) is LLaMA with query, key and value in one matrix. The larger model of each
// generation has ALiBi instead of rotary positions, and its config.json has no
// max_position_embeddings. Baichuan-2 (Yang et al. 2023, arXiv:2309.10305) has a head with rows of
// length 1; it is recognized by z_loss_weight, or by its vocabulary.
namespace piton {
namespace {

constexpr std::int64_t kVocabularyOf2 = 125696;

ModelConfig baichuan_model(const HfConfig& config) {
  const bool rotary = config.has("max_position_embeddings");
  ModelConfig model = llama_like_model(
      config, llama_facts(), {.longest = rotary ? "max_position_embeddings" : "model_max_length"});
  refuse_partial_rotary(config, model);
  if (!rotary) model.positions = PositionKind::kAlibi;
  model.normalized_head = config.has("z_loss_weight") || model.vocabulary == kVocabularyOf2;
  return model;
}

nlohmann::ordered_json baichuan_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  for (const char* key :
       {"num_key_value_heads", "head_dim", "attention_dropout", "rope_parameters"})
    keys.erase(key);
  if (model.positions == PositionKind::kAlibi) keys.erase("max_position_embeddings");
  keys["model_max_length"] = model.max_positions;
  if (model.normalized_head) keys["z_loss_weight"] = 0;
  return keys;
}

std::vector<HfPlace> baichuan_places(const ModelConfig& model) {
  return named_places(model, llama_names(packed_attention(model, "self_attn.W_pack.")));
}

}  // namespace

HfFamily hf_baichuan() {
  return {.model_types = {"baichuan"},
          .architectures = {"BaichuanForCausalLM", "BaiChuanForCausalLM"},
          .model = baichuan_model,
          .places = baichuan_places,
          .keys = baichuan_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
