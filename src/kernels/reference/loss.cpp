// Cross entropy over a vocabulary that may be split.
#include "kernels/loss.h"

#include <cmath>
#include <limits>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {}  // namespace

void execute(const LossStatistics& call) {
  const Values x = Values::read(call.logits);
  const Values labels = Values::read(call.labels);
  Values statistics(call.statistics.shape());
  for (std::int64_t row = 0; row < call.logits.dim(0); ++row) {
    double largest = -kInfinity;
    for (std::int64_t i = 0; i < call.valid; ++i) largest = std::fmax(largest, x(row, i));
    double sum = 0;
    for (std::int64_t i = 0; i < call.valid; ++i) sum += std::exp(x(row, i) - largest);
    const std::int64_t label = static_cast<std::int64_t>(labels(row)) - call.vocabulary_begin;
    const bool here = labels(row) >= 0 && label >= 0 && label < call.valid;
    statistics(row, 0) = largest;
    statistics(row, 1) = sum;
    statistics(row, 2) = here ? x(row, label) : 0;
  }
  statistics.write(call.statistics);
}

void execute(const LossCombine& call) {
  const Values statistics = Values::read(call.statistics);
  const Values labels = Values::read(call.labels);
  const Values mask = Values::read(call.mask);
  const std::int64_t ranks = call.statistics.dim(0);
  const std::int64_t n = call.statistics.dim(1);
  Values loss(Shape{n});
  Values lse(Shape{n});
  Values sum = Values::read(call.sum);
  for (std::int64_t row = 0; row < n; ++row) {
    double largest = -kInfinity;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      largest = std::fmax(largest, statistics(rank, row, 0));
    }
    double exponentials = 0;
    double label_logit = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      exponentials += statistics(rank, row, 1) * std::exp(statistics(rank, row, 0) - largest);
      label_logit += statistics(rank, row, 2);
    }
    lse(row) = largest + std::log(exponentials);
    loss(row) = labels(row) < 0 ? 0 : lse(row) - label_logit;
    sum(0) += mask(row) * loss(row);
  }
  loss.write(call.loss);
  lse.write(call.lse);
  sum.write(call.sum);
}

void execute(const LossBackward& call) {
  const Values x = Values::read(call.logits);
  const Values lse = Values::read(call.lse);
  const Values labels = Values::read(call.labels);
  const Values mask = Values::read(call.mask);
  const Values scale = Values::read(call.scale);
  Values dlogits(call.dlogits.shape());
  for (std::int64_t row = 0; row < call.logits.dim(0); ++row) {
    if (labels(row) < 0) continue;
    const std::int64_t label = static_cast<std::int64_t>(labels(row)) - call.vocabulary_begin;
    for (std::int64_t i = 0; i < call.valid; ++i) {
      const double onehot = i == label ? 1 : 0;
      dlogits(row, i) = (std::exp(x(row, i) - lse(row)) - onehot) * mask(row) * scale(0);
    }
  }
  dlogits.write(call.dlogits);
}

}  // namespace piton::reference
