// The head of a classifier of texts: a row for each label, in the place of the head over the
// vocabulary, as of ...ForSequenceClassification in Transformers. With one label it gives a number:
// the reward of a text, of a reward model, or one that it learns by its squared difference
// (regression), as an encoder's always is. A text has one of several labels, whose probabilities
// are a softmax, or any number of them (several labels): then each has its own, a sigmoid, and the
// loss is the mean binary cross entropy of the labels.
//
//   decoder   label.weight [N, h], of rewards reward.weight [1, h]: logits of the last token of a
//             text. A head over a vocabulary of N ids, so that the label of that token is the label
//             of the text, all others have none, and the loss is that of words
//   encoder   the pooler (model/encoder_options.h) of the first token, then label.weight [N, h] and
//             label.bias [N]
//
// With one id, 0, the loss of a token with another label is the log of the sum over one logit,
// exp(logit): the logit itself. So the loss of a row with this label is its number, the gradient of
// the logit is the weight of the row, and head_loss (ops/head_loss.h) splits, slices and sums
// numbers as it does losses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options/options.h"
#include "base/options/problem_types.h"

namespace piton {

struct ModelConfig;

inline constexpr const char* kRewardTensor = "reward.weight";

// The label of a row that has a number; others have kNoLabel (data/samples/sample.h).
inline constexpr std::int32_t kRewardLabel = 1;

// The name of the matrix of the model's head.
std::string label_tensor(const ModelConfig& config);

// Whether an encoder's pooler is a part of its head for labels, as in RoBERTa, so that a model
// without labels has none.
bool head_has_pooler(const ModelConfig& config);

// The canonical tensors that a model without labels does not have.
std::vector<std::string> label_tensors(const ModelConfig& config);

// ModelConfig::label_names, or LABEL_0, LABEL_1, ...
std::vector<std::string> names_of_labels(const ModelConfig& config);

// The value of --problem-type, "" of a model without labels or of rewards.
std::string problem_of(const ModelConfig& config);

struct WantedLabels {
  std::int64_t count = 1;
  std::vector<std::string> names = {};  // of several; empty: LABEL_0, LABEL_1, ...
  bool regression = false;              // the one of a decoder is no reward
  bool several = false;                 // a text has any number of them
};

// Makes `config`, a language model or an encoder with any heads, a classifier: without what
// belongs to the head over the vocabulary.
void set_labels(ModelConfig& config, const WantedLabels& wanted);

struct LabelOptions {
  bool reward_head = false;
  std::optional<std::int64_t> count;
  std::vector<std::string> names;
  std::optional<std::string> problem;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"reward-head", "a head of one row, the reward of a text (set by --stage rm)", same},
      reward_head);
    v(Option{"num-labels",
             "labels of a classifier of texts, whose head is in the place of that over the "
             "vocabulary (--stage classify)",
             {.resume = Resume::kMustMatch, .placeholder = "N"}},
      count);
    v(Option{"label-names",
             "names of these labels, in their order, with spaces or commas between them; they say "
             "--num-labels too (default: LABEL_0, LABEL_1, ...)",
             {.resume = Resume::kMustMatch, .placeholder = "NAME"}},
      names);
    v(Option{"problem-type",
             "what such a head gives: single_label_classification is one of the labels, "
             "multi_label_classification any number of them, regression a number, whose loss is "
             "the squared difference (default: regression of one label, else one of the labels)",
             {.resume = Resume::kMustMatch,
              .choices = {kOneOfLabels, kSeveralLabels, kRegression}}},
      problem);
  }

  bool given() const { return reward_head || count || !names.empty() || problem; }
  bool regression() const { return problem == kRegression; }
  bool several() const { return problem == kSeveralLabels; }
  // Those of --label-names: one text with commas is a list.
  std::vector<std::string> listed_names() const;
  // How many labels the options say; 0: none. Throws Error(kUsage) where two of them differ.
  std::int64_t number() const;
  WantedLabels wanted() const { return {number(), listed_names(), regression(), several()}; }
  void apply(ModelConfig& config) const;
  // The options whose apply() gives the labels of `config`.
  static LabelOptions of(const ModelConfig& config);
};

// Throws Error(kUsage) that names the flag of the first fact that a classifier cannot have. Does
// nothing for other models.
void check_labels(const ModelConfig& config);

}  // namespace piton
