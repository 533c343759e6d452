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

// For each label how many texts have it, get it, and both; or their numbers.
struct LabelCounts {
  std::vector<double> wanted;
  std::vector<double> predicted;
  std::vector<double> right;
  std::vector<NumberOfText> numbers;

  bool empty() const { return wanted.empty() && numbers.empty(); }
  void add(std::int64_t wanted_label, std::int64_t predicted_label, std::int64_t labels);
  void add(const LabelCounts& more);

  double texts() const;
  double accuracy() const;
  // The mean of 2 right / (wanted + predicted) over the labels that any text has or gets, as
  // scikit-learn's f1_score with average="macro".
  double macro_f1() const;
  // Matthews' correlation of several labels (Gorodkin 2004), as scikit-learn's matthews_corrcoef: 0
  // where it has no denominator.
  double matthews() const;
  // Of numbers: the mean of their squared differences, and the correlations of both, of the numbers
  // (Pearson) and of their ranks, where equal ones share the mean of theirs (Spearman), as scipy's
  // pearsonr and spearmanr; 0 where there is no denominator.
  double mean_square() const;
  double pearson() const;
  double spearman() const;
  // accuracy of training, and macro_f1 and matthews of a validation; of numbers mse, pearson and
  // spearman.
  ObjectiveFigure accuracy_figure() const;
  std::vector<ObjectiveFigure> figures() const;
};

// The number of the largest logit, the first of equal ones.
std::int64_t largest(std::span<const float> logits);

// The probability of each label, by softmax.
std::vector<double> label_probabilities(std::span<const float> logits);

}  // namespace piton
