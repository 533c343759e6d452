#include "session/label_counts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace piton {
namespace {

double sum_of_all(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const auto count = static_cast<double>(x.size());
  const double mean_x = sum_of_all(x) / count;
  const double mean_y = sum_of_all(y) / count;
  double both = 0, of_x = 0, of_y = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    both += (x[i] - mean_x) * (y[i] - mean_y);
    of_x += (x[i] - mean_x) * (x[i] - mean_x);
    of_y += (y[i] - mean_y) * (y[i] - mean_y);
  }
  const double below = std::sqrt(of_x) * std::sqrt(of_y);
  return below == 0 ? 0 : both / below;
}

// The place of each value among all; equal ones have the mean of theirs.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i)
      ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
    begin = end;
  }
  return ranks;
}

std::vector<double> part_of(const std::vector<NumberOfText>& numbers, float NumberOfText::*part) {
  std::vector<double> values;
  for (const NumberOfText& one : numbers) values.push_back(one.*part);
  return values;
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

void LabelCounts::add_set(std::span<const std::uint8_t> wanted_labels,
                          std::span<const float> logits, double threshold) {
  for (std::vector<double>* counts : {&wanted, &predicted, &right}) counts->resize(logits.size());
  const std::vector<double> probabilities = label_probabilities(logits, /*several=*/true);
  bool all_right = true;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const bool has = wanted_labels[i] != 0;
    const bool gets = probabilities[i] >= threshold;
    wanted[i] += has ? 1 : 0;
    predicted[i] += gets ? 1 : 0;
    right[i] += has && gets ? 1 : 0;
    all_right = all_right && has == gets;
  }
  sets += 1;
  exact += all_right ? 1 : 0;
}

void LabelCounts::add(const LabelCounts& more) {
  const auto add_to = [](std::vector<double>& sums, const std::vector<double>& one) {
    sums.resize(std::max(sums.size(), one.size()));
    for (std::size_t i = 0; i < one.size(); ++i) sums[i] += one[i];
  };
  add_to(wanted, more.wanted);
  add_to(predicted, more.predicted);
  add_to(right, more.right);
  sets += more.sets;
  exact += more.exact;
  numbers.insert(numbers.end(), more.numbers.begin(), more.numbers.end());
}

double LabelCounts::texts() const {
  if (sets > 0) return sets;
  return numbers.empty() ? sum_of_all(wanted) : static_cast<double>(numbers.size());
}

double LabelCounts::mean_square() const {
  double sum = 0;
  for (const NumberOfText& one : numbers)
    sum += std::pow(static_cast<double>(one.given) - one.wanted, 2);
  return sum / texts();
}

double LabelCounts::pearson() const {
  return correlation(part_of(numbers, &NumberOfText::wanted),
                     part_of(numbers, &NumberOfText::given));
}

double LabelCounts::spearman() const {
  return correlation(ranks_of(part_of(numbers, &NumberOfText::wanted)),
                     ranks_of(part_of(numbers, &NumberOfText::given)));
}

double LabelCounts::accuracy() const { return accuracy_figure().mean(); }

double LabelCounts::macro_f1() const {
  double sum = 0;
  double labels = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] + predicted[i] == 0) continue;
    sum += 2 * right[i] / (wanted[i] + predicted[i]);
    labels += 1;
  }
  return sum / (sets > 0 ? static_cast<double>(wanted.size()) : labels);
}

double LabelCounts::micro_f1() const {
  const double below = sum_of_all(wanted) + sum_of_all(predicted);
  return below == 0 ? 0 : 2 * sum_of_all(right) / below;
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
  return {"accuracy", sets > 0 ? exact : sum_of_all(right), texts()};
}

std::vector<ObjectiveFigure> LabelCounts::figures() const {
  if (!numbers.empty())
    return {{"mse", mean_square(), 1}, {"pearson", pearson(), 1}, {"spearman", spearman(), 1}};
  if (sets > 0)
    return {accuracy_figure(), {"micro_f1", micro_f1(), 1}, {"macro_f1", macro_f1(), 1}};
  return {accuracy_figure(), {"macro_f1", macro_f1(), 1}, {"matthews", matthews(), 1}};
}

std::int64_t largest(std::span<const float> logits) {
  return std::ranges::max_element(logits) - logits.begin();
}

std::vector<double> label_probabilities(std::span<const float> logits, bool several) {
  if (several) {
    std::vector<double> alone;
    for (const float one : logits) alone.push_back(1 / (1 + std::exp(-static_cast<double>(one))));
    return alone;
  }
  const double most = logits[static_cast<std::size_t>(largest(logits))];
  double sum = 0;
  for (const float one : logits) sum += std::exp(one - most);
  std::vector<double> shares;
  for (const float one : logits) shares.push_back(std::exp(one - most) / sum);
  return shares;
}

}  // namespace piton
