// How well the labels of texts are predicted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "session/objective.h"

namespace piton {

// For each label how many texts have it, get it, and both.
struct LabelCounts {
  std::vector<double> wanted;
  std::vector<double> predicted;
  std::vector<double> right;

  bool empty() const { return wanted.empty(); }
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
  // accuracy of training, and macro_f1 and matthews of a validation.
  ObjectiveFigure accuracy_figure() const;
  std::vector<ObjectiveFigure> figures() const;
};

// The number of the largest logit, the first of equal ones.
std::int64_t largest(std::span<const float> logits);

}  // namespace piton
