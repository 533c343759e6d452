// Draws from the whole order of a row.
#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

// The logits of a row, in the order of ids.
std::vector<double> row_of(const Values& logits, std::int64_t row, std::int64_t vocabulary) {
  std::vector<double> all;
  const std::int64_t columns = logits.shape()[2];
  for (std::int64_t id = 0; id < vocabulary; ++id)
    all.push_back(logits(id / columns, row, id % columns));
  return all;
}

// Logits of ids in their order.
using Ordered = std::vector<double>;

// The first logits that are not below the largest by more than `sigma` deviations of all.
std::size_t within_deviations(const Ordered& x, double sigma) {
  if (sigma == 0) return x.size();
  double mean = 0;
  for (const double one : x) mean += one / static_cast<double>(x.size());
  double variance = 0;
  for (const double one : x) variance += (one - mean) * (one - mean);
  const double least = x[0] - sigma * std::sqrt(variance / static_cast<double>(x.size()));
  std::size_t count = 1;
  while (count < x.size() && x[count] >= least) ++count;
  return count;
}

// What is left of the order: weights from `begin` to `end`.
struct Stretch {
  std::vector<double> weights;
  std::size_t begin = 0;
  std::size_t end = 0;
  double sum() const {
    return std::accumulate(weights.begin() + static_cast<std::ptrdiff_t>(begin),
                           weights.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
  }
};

double temperature_of(const Ordered& x, const DrawFilters& filters) {
  if (filters.temperature_range == 0) return filters.temperature;
  double sum = 0;
  double product = 0;
  for (const double one : x) {
    sum += std::exp(one - x[0]);
    product += (one - x[0]) * std::exp(one - x[0]);
  }
  return followed_temperature(filters, static_cast<double>(x.size()), sum, product);
}

void drop_unlikely(double least, Stretch& kept) {
  while (kept.end > 1 && (kept.weights[kept.end - 1] < least || kept.weights[kept.end - 1] == 0))
    --kept.end;
}

// `scaled`: (x - max x) / T, in order.
void keep_typical(const Ordered& scaled, double share, Stretch& kept) {
  if (share == 1) return;
  const double sum = kept.sum();
  double mean = 0;
  for (std::size_t i = kept.begin; i < kept.end; ++i) mean += scaled[i] * kept.weights[i];
  mean /= sum;
  const auto distance = [&](std::size_t i) { return std::abs(scaled[i] - mean); };
  std::vector<std::size_t> nearest(kept.end - kept.begin);
  std::iota(nearest.begin(), nearest.end(), kept.begin);
  std::ranges::stable_sort(nearest, {}, distance);
  double reached = 0;
  double farthest = 0;
  for (const std::size_t i : nearest) {
    farthest = distance(i);
    reached += kept.weights[i];
    if (reached >= share * sum) break;
  }
  while (distance(kept.begin) > farthest) ++kept.begin;
  while (distance(kept.end - 1) > farthest) --kept.end;
}

void drop_top_choices(double threshold, Stretch& kept) {
  const double least = threshold * kept.sum();
  while (kept.begin + 1 < kept.end && kept.weights[kept.begin + 1] >= least) ++kept.begin;
}

struct Drawn {
  std::int64_t id = -1;
  double share = 0;
};

Drawn drawn(const std::vector<double>& logits, const DrawFilters& filters,
            const DrawnShares& shares) {
  std::vector<std::int64_t> order;
  for (std::int64_t id = 0; id < std::ssize(logits); ++id) {
    const double x = logits[static_cast<std::size_t>(id)];
    if (std::isnan(x) || x == kInfinity) return {};
    if (x != -kInfinity) order.push_back(id);
  }
  if (order.empty()) return {};
  const auto logit = [&](std::int64_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::ranges::stable_sort(order,
                           [&](std::int64_t a, std::int64_t b) { return logit(a) > logit(b); });
  if (filters.most == 1) return {.id = order[0], .share = 1};
  Ordered x;
  for (const std::int64_t id : order) x.push_back(logit(id));
  const double temperature = temperature_of(x, filters);
  Ordered scaled;
  Stretch kept;
  kept.end = std::min(within_deviations(x, filters.sigma), static_cast<std::size_t>(filters.most));
  for (std::size_t i = 0; i < kept.end; ++i) {
    scaled.push_back((x[i] - x[0]) / temperature);
    kept.weights.push_back(std::exp(scaled[i]));
  }
  if (filters.share < 1) {
    const double sum = kept.sum();
    double reached = 0;
    std::size_t count = 0;
    while (count < kept.end && reached < filters.share * sum) reached += kept.weights[count++];
    kept.end = count;
  }
  drop_unlikely(filters.least, kept);
  if (filters.least_share > 0) drop_unlikely(filters.least_share * kept.sum(), kept);
  keep_typical(scaled, filters.typical, kept);
  if (shares.v < filters.xtc_probability) drop_top_choices(filters.xtc_threshold, kept);
  const double sum = kept.sum();
  double mark = shares.u * sum;
  std::size_t i = kept.begin;
  for (; i + 1 < kept.end; ++i) {
    mark -= kept.weights[i];
    if (mark < 0) break;
  }
  return {.id = order[i], .share = kept.weights[i] / sum};
}

}  // namespace

void execute(const ChangeLogits& call) {
  Values logits = Values::read(call.logits);
  const std::int64_t columns = call.logits.dim(2);
  if (call.seen.defined()) {
    const Values seen = Values::read(call.seen);
    const Values penalties = Values::read(call.penalties);
    for (std::int64_t i = 0; i < call.seen.dim(0); ++i) {
      const auto row = static_cast<std::int64_t>(seen(i, 0));
      const auto id = static_cast<std::int64_t>(seen(i, 1));
      double& x = logits(id / columns, row, id % columns);
      x = x < 0 ? x * penalties(row, 0) : x / penalties(row, 0);
      x -= seen(i, 2) * penalties(row, 1);
      if (seen(i, 2) > 0) x -= penalties(row, 2);
    }
  }
  if (call.allowed.defined()) {
    const Values allowed = Values::read(call.allowed);
    for (std::int64_t row = 0; row < call.logits.dim(1); ++row) {
      for (std::int64_t id = 0; id < call.vocabulary; ++id) {
        const auto byte = static_cast<unsigned>(allowed(row, id / 8));
        if ((byte >> (id % 8) & 1U) == 0) logits(id / columns, row, id % columns) = -kInfinity;
      }
    }
  }
  logits.write(call.logits);
}

void execute(const DrawTokens& call) {
  const Values logits = Values::read(call.logits);
  Values ids(call.ids.shape());
  Values drawn_of_rows(call.shares.shape());
  for (std::int64_t row = 0; row < call.ids.dim(0); ++row) {
    const DrawFilters filters = draw_filters(call.filters.data<double>() + kDrawFilters * row);
    const DrawnShares shares = drawn_shares(call.places.data<std::int32_t>() + 5 * row);
    const Drawn one = drawn(row_of(logits, row, call.vocabulary), filters, shares);
    ids(row) = static_cast<double>(one.id);
    drawn_of_rows(row) = one.share;
  }
  ids.write(call.ids);
  drawn_of_rows.write(call.shares);
}

}  // namespace piton::reference
