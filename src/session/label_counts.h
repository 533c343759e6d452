// How well the labels of texts are predicted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "session/objective.h"

namespace piton {

// What a text has, and gets, of a model of numbers.
struct NumberOfText {
  float wanted = 0;
  float given = 0;
};

// A text gets each label with at least this probability, where it may have several.
inline constexpr double kLabelThreshold = 0.5;

// For each label how many texts have it, get it, and both; or their numbers.
struct LabelCounts {
  std::vector<double> wanted;
  std::vector<double> predicted;
  std::vector<double> right;
  // Of texts with any number of labels: how many there are, and how many get exactly theirs.
  double sets = 0;
  double exact = 0;
  std::vector<NumberOfText> numbers;

  bool empty() const { return wanted.empty() && numbers.empty(); }
  void add(std::int64_t wanted_label, std::int64_t predicted_label, std::int64_t labels);
  // A text with any number of labels: 1 for each that it has, else 0, and the logit of each.
  void add_set(std::span<const std::uint8_t> wanted_labels, std::span<const float> logits,
               double threshold = kLabelThreshold);
  void add(const LabelCounts& more);

  double texts() const;
  // The share of texts that get their label, or exactly their labels.
  double accuracy() const;
  // The mean of 2 right / (wanted + predicted) over the labels that any text has or gets, as
  // scikit-learn's f1_score with average="macro". Where a text has any number of labels, over all
  // labels, 0 for one that no text has or gets (zero_division=0).
  double macro_f1() const;
  // Of texts with any number of labels: the same of the sums over the labels (average="micro").
  double micro_f1() const;
  // Matthews' correlation of several labels (Gorodkin 2004), as scikit-learn's matthews_corrcoef: 0
  // where it has no denominator.
  double matthews() const;
  // Of numbers: the mean of their squared differences, and the correlations of both, of the numbers
  // (Pearson) and of their ranks, where equal ones share the mean of theirs (Spearman), as scipy's
  // pearsonr and spearmanr; 0 where there is no denominator.
  double mean_square() const;
  double pearson() const;
  double spearman() const;
  // accuracy of training, and macro_f1 and matthews of a validation; of several labels of a text
  // micro_f1 and macro_f1; of numbers mse, pearson and spearman.
  ObjectiveFigure accuracy_figure() const;
  std::vector<ObjectiveFigure> figures() const;
};

// The number of the largest logit, the first of equal ones.
std::int64_t largest(std::span<const float> logits);

// The probability of each label: by softmax, or, if a text may have several labels, by a sigmoid.
std::vector<double> label_probabilities(std::span<const float> logits, bool several);

}  // namespace piton
