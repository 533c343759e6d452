#include "session/label_counts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace piton {
namespace {

double sum_of_all(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

void LabelCounts::add(std::int64_t wanted_label, std::int64_t predicted_label,
                      std::int64_t labels) {
  for (std::vector<double>* counts : {&wanted, &predicted, &right})
    counts->resize(static_cast<std::size_t>(labels));
  wanted[static_cast<std::size_t>(wanted_label)] += 1;
  predicted[static_cast<std::size_t>(predicted_label)] += 1;
  if (wanted_label == predicted_label) right[static_cast<std::size_t>(wanted_label)] += 1;
}

void LabelCounts::add(const LabelCounts& more) {
  const auto add_to = [](std::vector<double>& sums, const std::vector<double>& one) {
    sums.resize(std::max(sums.size(), one.size()));
    for (std::size_t i = 0; i < one.size(); ++i) sums[i] += one[i];
  };
  add_to(wanted, more.wanted);
  add_to(predicted, more.predicted);
  add_to(right, more.right);
}

double LabelCounts::texts() const { return sum_of_all(wanted); }

double LabelCounts::accuracy() const { return sum_of_all(right) / texts(); }

double LabelCounts::macro_f1() const {
  double sum = 0;
  double labels = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] + predicted[i] == 0) continue;
    sum += 2 * right[i] / (wanted[i] + predicted[i]);
    labels += 1;
  }
  return sum / labels;
}

double LabelCounts::matthews() const {
  const double all = texts();
  double both = 0;
  double of_wanted = all * all;
  double of_predicted = all * all;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    both += wanted[i] * predicted[i];
    of_wanted -= wanted[i] * wanted[i];
    of_predicted -= predicted[i] * predicted[i];
  }
  const double below = std::sqrt(of_wanted * of_predicted);
  return below == 0 ? 0 : (sum_of_all(right) * all - both) / below;
}

ObjectiveFigure LabelCounts::accuracy_figure() const {
  return {"accuracy", sum_of_all(right), texts()};
}

std::vector<ObjectiveFigure> LabelCounts::figures() const {
  return {accuracy_figure(), {"macro_f1", macro_f1(), 1}, {"matthews", matthews(), 1}};
}

std::int64_t largest(std::span<const float> logits) {
  return std::ranges::max_element(logits) - logits.begin();
}

}  // namespace piton
