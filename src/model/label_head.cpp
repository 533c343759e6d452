#include "model/label_head.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/options/option_range.h"
#include "model/config.h"

namespace piton {
namespace {

constexpr std::int64_t kMostLabels = 1 << 16;

}  // namespace

std::string label_tensor(const ModelConfig& config) {
  return config.gives_rewards() ? kRewardTensor : "label.weight";
}

bool head_has_pooler(const ModelConfig& config) {
  return config.encoder && config.encoder->first_position > 0;
}

std::vector<std::string> label_tensors(const ModelConfig& config) {
  if (config.labels == 0) return {};
  std::vector<std::string> names{label_tensor(config)};
  if (config.encoder) names.emplace_back("label.bias");
  if (head_has_pooler(config)) names.insert(names.end(), {"pooler.weight", "pooler.bias"});
  return names;
}

std::vector<std::string> names_of_labels(const ModelConfig& config) {
  if (!config.label_names.empty()) return config.label_names;
  std::vector<std::string> names;
  for (std::int64_t label = 0; label < config.labels; ++label)
    names.push_back(fmt::format("LABEL_{}", label));
  return names;
}

std::string problem_of(const ModelConfig& config) {
  if (!config.classifies()) return "";
  return config.regression ? kRegression : config.several_labels ? kSeveralLabels : kOneOfLabels;
}

void set_labels(ModelConfig& config, const WantedLabels& wanted) {
  config.labels = wanted.count;
  config.label_names = wanted.names;
  config.several_labels = wanted.several;
  config.regression = wanted.count == 1 && !wanted.several && (wanted.regression || config.encoder);
  config.normalized_head = false;
  config.logit_soft_cap = 0;
  config.logit_divisor = 1;
  config.head_bias = false;
  if (config.encoder) {
    config.encoder->word_head = config.encoder->pair_head = false;
    config.encoder->exact_gelu_head = false;
    config.encoder->pooler = true;
  } else {
    config.tied = false;
  }
}

std::vector<std::string> LabelOptions::listed_names() const {
  if (names.size() != 1) return names;
  std::vector<std::string> parts;
  const std::string& all = names.front();
  for (std::size_t at = 0; at <= all.size();) {
    const std::size_t end = std::min(all.find(',', at), all.size());
    parts.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::int64_t LabelOptions::number() const {
  if (count) check_range("--num-labels", *count, 1, kMostLabels);
  if (count && reward_head && *count != 1) {
    throw Error(Fault::kUsage,
                "--num-labels: got {}, and the head of a reward model has one row; leave it out",
                *count);
  }
  if (regression()) {
    if (!reward_head && names.empty() && count.value_or(1) == 1) return 1;
    throw Error(Fault::kUsage,
                "--problem-type: got regression, which is of one number without a name; leave "
                "--num-labels, --label-names and --reward-head out, or --problem-type");
  }
  if (problem && (reward_head || (count == 1 && !several()))) {
    throw Error(Fault::kUsage, "--problem-type: got {}, of one label; wanted regression", *problem);
  }
  if (names.empty()) return count.value_or(reward_head ? 1 : 0);
  const std::vector<std::string> listed = listed_names();
  const std::set<std::string> different(listed.begin(), listed.end());
  if (different.size() != listed.size() || different.contains("")) {
    throw Error(Fault::kUsage, "--label-names: got {} names, {}; wanted each of them once",
                listed.size(), different.contains("") ? "one of them empty" : "two of them equal");
  }
  if (std::ssize(listed) == 1 && !several()) {
    throw Error(Fault::kUsage,
                "--label-names: got one, \"{}\"; wanted two or more, with spaces or commas between "
                "them",
                listed.front());
  }
  if (count.value_or(std::ssize(listed)) != std::ssize(listed)) {
    throw Error(Fault::kUsage,
                "--num-labels: got {}, and --label-names gives {}; leave --num-labels out", *count,
                listed.size());
  }
  check_range("--label-names", std::ssize(listed), 1, kMostLabels);
  return std::ssize(listed);
}

void LabelOptions::apply(ModelConfig& config) const {
  if (number() > 0) set_labels(config, wanted());
}

LabelOptions LabelOptions::of(const ModelConfig& config) {
  LabelOptions options{.names = config.label_names};
  options.reward_head = config.gives_rewards();
  if (config.labels > 0 && !options.reward_head) options.count = config.labels;
  if (config.regression || config.several_labels) options.problem = problem_of(config);
  return options;
}

void check_labels(const ModelConfig& config) {
  if (config.labels == 0) return;
  const auto refuse = [](bool given, const char* flag) {
    if (!given) return;
    throw Error(Fault::kUsage,
                "--num-labels, --reward-head: the head over the vocabulary is replaced, with its "
                "options; leave {} out",
                flag);
  };
  if (config.encoder_decoder) {
    throw Error(Fault::kUsage,
                "--num-labels, --reward-head: are for decoders and encoders, and the model is an "
                "encoder with a decoder (t5); leave them out");
  }
  refuse(config.tied && !config.encoder, "--tie-embeddings-and-output-weights");
  refuse(config.normalized_head, "--normalized-head");
  refuse(config.logit_soft_cap != 0, "--output-logit-softcapping");
  refuse(config.logit_divisor != 1, "--logits-scaling");
  refuse(config.head_bias, "--add-head-bias");
  PITON_ASSERT(config.label_names.empty() || std::ssize(config.label_names) == config.labels,
               "{} names of {} labels", config.label_names.size(), config.labels);
}

}  // namespace piton
