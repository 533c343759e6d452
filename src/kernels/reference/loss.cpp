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

void execute(const LargestLogits& call) {
  const Values x = Values::read(call.logits);
  Values ids(call.ids.shape());
  for (std::int64_t row = 0; row < call.logits.dim(0); ++row) {
    std::int64_t best = 0;
    for (std::int64_t i = 1; i < call.valid; ++i) {
      if (x(row, i) > x(row, best)) best = i;
    }
    ids(row) = static_cast<double>(call.vocabulary_begin + best);
  }
  ids.write(call.ids);
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

void execute(const SquaredLoss& call) {
  const Values targets = Values::read(call.targets);
  const Values mask = Values::read(call.mask);
  Values loss = Values::read(call.loss);
  Values weights(call.weights.shape());
  Values sum = Values::read(call.sum);
  for (std::int64_t row = 0; row < call.loss.dim(0); ++row) {
    const double difference = loss(row) - targets(row);
    loss(row) = difference * difference;
    weights(row) = 2 * difference * mask(row);
    sum(0) += mask(row) * loss(row);
  }
  loss.write(call.loss);
  weights.write(call.weights);
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

void execute(const BinaryLossStatistics& call) {
  const Values x = Values::read(call.logits);
  const Values labels = Values::read(call.labels);
  const Values sets = Values::read(call.sets);
  Values statistics(call.statistics.shape());
  for (std::int64_t row = 0; row < call.logits.dim(0); ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < call.valid && labels(row) >= 0; ++i) {
      const auto set = static_cast<std::int64_t>(labels(row));
      const double sign = sets(set, call.vocabulary_begin + i) != 0 ? 1 : -1;
      const double margin = sign * x(row, i);
      sum += std::fmin(margin, 0) - std::log1p(std::exp(-std::fabs(margin)));
    }
    statistics(row, 0) = 0;
    statistics(row, 1) = call.vocabulary_begin == 0 ? 1 : 0;
    statistics(row, 2) = sum / static_cast<double>(call.sets.dim(1));
  }
  statistics.write(call.statistics);
}

void execute(const BinaryLossBackward& call) {
  const Values x = Values::read(call.logits);
  const Values labels = Values::read(call.labels);
  const Values sets = Values::read(call.sets);
  const Values mask = Values::read(call.mask);
  const Values scale = Values::read(call.scale);
  Values dlogits(call.dlogits.shape());
  for (std::int64_t row = 0; row < call.logits.dim(0); ++row) {
    if (labels(row) < 0) continue;
    const double factor = mask(row) * scale(0) / static_cast<double>(call.sets.dim(1));
    for (std::int64_t i = 0; i < call.valid; ++i) {
      const double wanted = sets(static_cast<std::int64_t>(labels(row)), call.vocabulary_begin + i);
      dlogits(row, i) = (1 / (1 + std::exp(-x(row, i))) - wanted) * factor;
    }
  }
  dlogits.write(call.dlogits);
}

void execute(const TeacherStatistics& call) {
  const Values x = Values::read(call.logits);
  const Values y = Values::read(call.teacher);
  Values statistics(call.statistics.shape());
  for (std::int64_t row = 0; row < call.logits.dim(0); ++row) {
    const auto at = [&](const Values& logits, std::int64_t i) {
      return logits(row, i) / call.temperature;
    };
    double model = -kInfinity;
    double teacher = -kInfinity;
    for (std::int64_t i = 0; i < call.valid; ++i) {
      model = std::fmax(model, at(x, i));
      teacher = std::fmax(teacher, at(y, i));
    }
    statistics(row, 0) = model;
    statistics(row, 2) = teacher;
    for (std::int64_t i = 0; i < call.valid; ++i) {
      const double share = std::exp(at(y, i) - teacher);
      statistics(row, 1) += std::exp(at(x, i) - model);
      statistics(row, 3) += share;
      statistics(row, 4) += share * (at(y, i) - at(x, i));
    }
  }
  statistics.write(call.statistics);
}

void execute(const TeacherCombine& call) {
  const Values statistics = Values::read(call.statistics);
  const Values labels = Values::read(call.labels);
  const Values mask = Values::read(call.mask);
  const std::int64_t ranks = call.statistics.dim(0);
  Values loss = Values::read(call.loss);
  Values lse(call.lse.shape());
  Values sum = Values::read(call.sum);
  Values divergence = Values::read(call.divergence);
  const double factor = call.weight * call.temperature * call.temperature;
  for (std::int64_t row = 0; row < call.loss.dim(0); ++row) {
    double exponentials[2] = {0, 0};
    double difference = 0;
    for (int which = 0; which < 2; ++which) {
      double largest = -kInfinity;
      for (std::int64_t rank = 0; rank < ranks; ++rank)
        largest = std::fmax(largest, statistics(rank, row, 2 * which));
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const double share = std::exp(statistics(rank, row, 2 * which) - largest);
        exponentials[which] += statistics(rank, row, 2 * which + 1) * share;
        if (which == 1) difference += statistics(rank, row, 4) * share;
      }
      lse(row, which) = largest + std::log(exponentials[which]);
    }
    if (labels(row) < 0) {
      loss(row) = 0;
      continue;
    }
    const double distance = difference / exponentials[1] - lse(row, 1) + lse(row, 0);
    loss(row) = (1 - call.weight) * loss(row) + factor * distance;
    sum(0) += mask(row) * loss(row);
    divergence(0) += mask(row) * distance;
  }
  loss.write(call.loss);
  lse.write(call.lse);
  sum.write(call.sum);
  divergence.write(call.divergence);
}

void execute(const TeacherBackward& call) {
  const Values x = Values::read(call.logits);
  const Values y = Values::read(call.teacher);
  const Values lse = Values::read(call.lse);
  const Values warm = Values::read(call.lse_at_temperature);
  const Values labels = Values::read(call.labels);
  const Values mask = Values::read(call.mask);
  const Values scale = Values::read(call.scale);
  const double t = call.temperature;
  Values dlogits(call.dlogits.shape());
  for (std::int64_t row = 0; row < call.logits.dim(0); ++row) {
    if (labels(row) < 0) continue;
    const std::int64_t label = static_cast<std::int64_t>(labels(row)) - call.vocabulary_begin;
    for (std::int64_t i = 0; i < call.valid; ++i) {
      const double own = std::exp(x(row, i) - lse(row)) - (i == label ? 1 : 0);
      const double apart =
          std::exp(x(row, i) / t - warm(row, 0)) - std::exp(y(row, i) / t - warm(row, 1));
      dlogits(row, i) = ((1 - call.weight) * own + call.weight * t * apart) * mask(row) * scale(0);
    }
  }
  dlogits.write(call.dlogits);
}

}  // namespace piton::reference
