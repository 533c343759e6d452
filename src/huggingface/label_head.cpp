#include "huggingface/label_head.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"
#include "model/label_head.h"

namespace piton {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 23> kArchitectures{{
    {"bert", "BertForSequenceClassification"},
    {"bloom", "BloomForSequenceClassification"},
    {"camembert", "CamembertForSequenceClassification"},
    {"falcon", "FalconForSequenceClassification"},
    {"gemma", "GemmaForSequenceClassification"},
    {"gemma2", "Gemma2ForSequenceClassification"},
    {"gemma3_text", "Gemma3TextForSequenceClassification"},
    {"gpt2", "GPT2ForSequenceClassification"},
    {"gpt_neox", "GPTNeoXForSequenceClassification"},
    {"gptj", "GPTJForSequenceClassification"},
    {"llama", "LlamaForSequenceClassification"},
    {"megatron-bert", "MegatronBertForSequenceClassification"},
    {"mistral", "MistralForSequenceClassification"},
    {"olmo2", "Olmo2ForSequenceClassification"},
    {"olmo3", "Olmo3ForSequenceClassification"},
    {"opt", "OPTForSequenceClassification"},
    {"phi", "PhiForSequenceClassification"},
    {"phi3", "Phi3ForSequenceClassification"},
    {"qwen2", "Qwen2ForSequenceClassification"},
    {"qwen3", "Qwen3ForSequenceClassification"},
    {"roberta", "RobertaForSequenceClassification"},
    {"stablelm", "StableLmForSequenceClassification"},
    {"xlm-roberta", "XLMRobertaForSequenceClassification"},
}};

// The names of `id2label`, in the order of their numbers; empty: there are none.
std::vector<std::string> names_in(const HfConfig& config) {
  const HfConfig labels = config.object("id2label");
  std::vector<std::string> names;
  const std::size_t count = labels.keys().size();
  for (std::size_t label = 0; label < count; ++label) {
    const std::string key = fmt::to_string(label);
    if (!labels.lists(key)) config.refuse("id2label", "names of 0, 1, 2, ...");
    names.push_back(labels.word(key));
  }
  return names;
}

// Whether they are those that Transformers gives labels without names.
bool are_numbers(const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] != fmt::format("LABEL_{}", i)) return false;
  }
  return true;
}

}  // namespace

bool is_label_rows(const std::string& tensor) {
  return tensor == kHfLabelRows || tensor == "classifier.weight" ||
         tensor == "classifier.out_proj.weight";
}

std::string label_architecture(const std::string& model_type) {
  for (const auto& [type, architecture] : kArchitectures) {
    if (model_type == type) return architecture;
  }
  return "";
}

void set_label_head(const HfConfig& config, ModelConfig& model) {
  const std::vector<std::string> named = config.words("architectures");
  const std::string architecture = label_architecture(config.word("model_type"));
  if (architecture.empty() || std::ranges::find(named, architecture) == named.end()) return;
  std::vector<std::string> names = names_in(config);
  // Transformers has two labels if neither key is there.
  const std::int64_t labels =
      config.size("num_labels", names.empty() ? 2 : static_cast<std::int64_t>(names.size()));
  if (!names.empty() && std::ssize(names) != labels)
    config.refuse("num_labels", fmt::format("the {} of id2label", names.size()));
  const std::string problem = config.word("problem_type", "");
  const bool several = problem == kSeveralLabels;
  if (problem == kRegression && labels > 1) {
    config.refuse("problem_type",
                  fmt::format("{} or {} of {} labels", kOneOfLabels, kSeveralLabels, labels));
  }
  if ((labels == 1 && !several) || are_numbers(names)) names.clear();
  set_labels(model, {labels, std::move(names), problem == kRegression, several});
}

nlohmann::ordered_json label_keys(const std::string& model_type, const ModelConfig& model) {
  nlohmann::ordered_json names = nlohmann::ordered_json::object();
  nlohmann::ordered_json numbers = nlohmann::ordered_json::object();
  std::int64_t label = 0;
  for (const std::string& name : names_of_labels(model)) {
    names[fmt::to_string(label)] = name;
    numbers[name] = label++;
  }
  nlohmann::ordered_json keys{{"architectures", {label_architecture(model_type)}},
                              {"id2label", std::move(names)},
                              {"label2id", std::move(numbers)}};
  if (model.classifies()) keys["problem_type"] = problem_of(model);
  return keys;
}

std::vector<HfPlace> hf_places(const HfFamily& family, const ModelConfig& model) {
  // An encoder's places depend on its heads.
  if (model.labels == 0 || model.encoder) return family.places(model);
  ModelConfig with_words = model;
  with_words.labels = 0;
  std::vector<HfPlace> places = family.places(with_words);
  std::erase_if(places, [](const HfPlace& place) { return place.canonical == "head.weight"; });
  places.push_back({.canonical = label_tensor(model), .name = kHfLabelRows});
  return places;
}

}  // namespace piton
