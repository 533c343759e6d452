#include "huggingface/reward_head.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"
#include "model/reward_head.h"

namespace piton {
namespace {

constexpr const char* kScore = "score.weight";

// By the first model_type of a family.
constexpr std::array<std::pair<const char*, const char*>, 15> kArchitectures{{
    {"bloom", "BloomForSequenceClassification"},
    {"gemma", "GemmaForSequenceClassification"},
    {"gemma2", "Gemma2ForSequenceClassification"},
    {"gemma3_text", "Gemma3TextForSequenceClassification"},
    {"gpt2", "GPT2ForSequenceClassification"},
    {"gptj", "GPTJForSequenceClassification"},
    {"llama", "LlamaForSequenceClassification"},
    {"mistral", "MistralForSequenceClassification"},
    {"olmo2", "Olmo2ForSequenceClassification"},
    {"olmo3", "Olmo3ForSequenceClassification"},
    {"phi", "PhiForSequenceClassification"},
    {"phi3", "Phi3ForSequenceClassification"},
    {"qwen2", "Qwen2ForSequenceClassification"},
    {"qwen3", "Qwen3ForSequenceClassification"},
    {"stablelm", "StableLmForSequenceClassification"},
}};

}  // namespace

std::string reward_architecture(const HfFamily& family) {
  for (const auto& [type, architecture] : kArchitectures) {
    if (family.model_types.front() == type) return architecture;
  }
  return "";
}

void set_reward_head(const HfConfig& config, const HfFamily& family, ModelConfig& model) {
  const std::vector<std::string> named = config.words("architectures");
  const std::string architecture = reward_architecture(family);
  if (architecture.empty() || std::ranges::find(named, architecture) == named.end()) return;
  // Transformers has two labels if neither key is there.
  const HfConfig labels = config.object("id2label");
  const bool one = config.has("num_labels") ? config.size("num_labels") == 1
                                            : labels.lists("0") && !labels.lists("1");
  if (!one)
    config.refuse(config.has("num_labels") ? "num_labels" : "id2label",
                  "one label: the head of a reward model");
  model.reward_head = true;
  model.tied = model.normalized_head = false;
  model.logit_soft_cap = 0;
  model.logit_divisor = 1;
  model.head_bias = false;
}

nlohmann::ordered_json reward_keys(const HfFamily& family) {
  return {{"architectures", {reward_architecture(family)}},
          {"id2label", {{"0", "LABEL_0"}}},
          {"label2id", {{"LABEL_0", 0}}}};
}

std::vector<HfPlace> hf_places(const HfFamily& family, const ModelConfig& model) {
  if (!model.reward_head) return family.places(model);
  ModelConfig with_words = model;
  with_words.reward_head = false;
  std::vector<HfPlace> places = family.places(with_words);
  std::erase_if(places, [](const HfPlace& place) { return place.canonical == "head.weight"; });
  places.push_back({.canonical = kRewardTensor, .name = kScore});
  return places;
}

}  // namespace piton
