#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace piton {

LearningRate::LearningRate(const LearningRateOptions& options, std::int64_t train_iters)
    : options_(options) {
  if (!(options.lr > 0) || !std::isfinite(options.lr)) {
    throw Error(Fault::kUsage, "learning rate: --lr: got {}, wanted a number above 0", options.lr);
  }
  if (!(options.min_lr >= 0) || !(options.min_lr <= options.lr)) {
    throw Error(Fault::kUsage, "learning rate: --min-lr: got {}, wanted 0 to --lr, which is {}",
                options.min_lr, options.lr);
  }
  if (options.decay_iters && *options.decay_iters < 1) {
    throw Error(Fault::kUsage, "learning rate: --lr-decay-iters: got {}, wanted at least 1",
                *options.decay_iters);
  }
  if (options.warmup_iters < 0) {
    throw Error(Fault::kUsage, "learning rate: --lr-warmup-iters: got {}, wanted at least 0",
                options.warmup_iters);
  }
  const std::int64_t decay = options.decay_iters.value_or(train_iters);
  decay_ = static_cast<double>(decay);
  warmup_ = static_cast<double>(options.warmup_iters);
  if (options.warmup_fraction) {
    if (options.warmup_iters > 0) {
      throw Error(
          Fault::kUsage,
          "learning rate: --lr-warmup-fraction {} and --lr-warmup-iters {} exclude each other; "
          "give one",
          *options.warmup_fraction, options.warmup_iters);
    }
    if (!(*options.warmup_fraction >= 0) || !(*options.warmup_fraction < 1)) {
      throw Error(Fault::kUsage,
                  "learning rate: --lr-warmup-fraction: got {}, wanted at least 0 and below 1",
                  *options.warmup_fraction);
    }
    warmup_ = *options.warmup_fraction * decay_;
  }
  if (decay < 1) {
    throw Error(
        Fault::kUsage,
        "learning rate: nothing to decay over: got {} training steps, wanted at least 1; give "
        "--train-iters or --lr-decay-iters",
        train_iters);
  }
  if (warmup_ >= decay_) {
    throw Error(Fault::kUsage,
                "learning rate: a warm-up of {} steps does not end before the decay of {}; lower "
                "--lr-warmup-iters or raise --lr-decay-iters",
                warmup_, decay_);
  }
}

double LearningRate::at(std::int64_t steps) const {
  const double n = static_cast<double>(steps);
  const double lr = options_.lr;
  const double min_lr = options_.min_lr;
  if (warmup_ > 0 && n <= warmup_) return lr * n / warmup_;
  if (options_.decay_style == DecayStyle::kConstant) return lr;
  if (n > decay_) return min_lr;
  if (options_.decay_style == DecayStyle::kInverseSquareRoot) {
    return std::max(min_lr, lr * std::sqrt(std::max(warmup_, 1.0) / std::max(n, 1.0)));
  }
  const double ratio = (n - warmup_) / (decay_ - warmup_);
  const double share = options_.decay_style == DecayStyle::kLinear
                           ? 1 - ratio
                           : (std::cos(std::numbers::pi * ratio) + 1) / 2;
  return min_lr + share * (lr - min_lr);
}

}  // namespace piton
