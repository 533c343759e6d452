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

struct Filters {
  double temperature;
  std::int64_t most;  // k
  double share;       // p
  double least;       // min_p
};

std::int64_t drawn(const std::vector<double>& logits, const Filters& filters, double u) {
  std::vector<std::int64_t> order;
  for (std::int64_t id = 0; id < std::ssize(logits); ++id) {
    const double x = logits[static_cast<std::size_t>(id)];
    if (std::isnan(x) || x == kInfinity) return -1;
    if (x != -kInfinity) order.push_back(id);
  }
  if (order.empty()) return -1;
  const auto logit = [&](std::int64_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::ranges::stable_sort(order,
                           [&](std::int64_t a, std::int64_t b) { return logit(a) > logit(b); });
  std::size_t kept = std::min(order.size(), static_cast<std::size_t>(filters.most));
  std::vector<double> weights;
  for (std::size_t i = 0; i < kept; ++i)
    weights.push_back(std::exp((logit(order[i]) - logit(order[0])) / filters.temperature));
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (filters.share < 1) {
    double reached = 0;
    std::size_t count = 0;
    while (count < kept && reached < filters.share * sum) reached += weights[count++];
    kept = count;
    sum = reached;
  }
  while (kept > 1 && (weights[kept - 1] < filters.least || weights[kept - 1] == 0))
    sum -= weights[--kept];
  double mark = u * sum;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    mark -= weights[i];
    if (mark < 0) return order[i];
  }
  return order[kept - 1];
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
  const Values filters = Values::read(call.filters);
  Values ids(call.ids.shape());
  for (std::int64_t row = 0; row < call.ids.dim(0); ++row) {
    const Filters of_row{.temperature = filters(row, 0),
                         .most = static_cast<std::int64_t>(filters(row, 1)),
                         .share = filters(row, 2),
                         .least = filters(row, 3)};
    const double u = drawn_share(call.places.data<std::int32_t>() + 5 * row);
    ids(row) = static_cast<double>(drawn(row_of(logits, row, call.vocabulary), of_row, u));
  }
  ids.write(call.ids);
}

}  // namespace piton::reference
