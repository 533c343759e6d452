// The learning rate of each step: a warm-up, then a decay, as Megatron-LM computes them.
//
// With n successful steps behind, w warm-up steps and D decay steps:
//
//   n <= w, w > 0    lr * n / w                      (so 0 for the very first step)
//   constant         lr
//   n > D            min_lr
//   inverse root     max(min_lr, lr * sqrt(max(w, 1) / max(n, 1)))
//   otherwise        min_lr + c * (lr - min_lr),  r = (n - w) / (D - w)
//                    c = 1 - r (linear),  c = (1 + cos(pi r)) / 2 (cosine)
//
// A pure function of n, in double: nothing of it is stored, and a resumed run continues exactly.
// Steps that were skipped (non-finite gradients) do not count.
#pragma once

#include <cstdint>
#include <optional>

#include "base/options.h"

namespace piton {

enum class DecayStyle : std::uint8_t { kConstant, kLinear, kCosine, kInverseSquareRoot };

struct LearningRateOptions {
  double lr = 1.5e-4;
  double min_lr = 0;
  DecayStyle decay_style = DecayStyle::kLinear;
  std::optional<std::int64_t> decay_iters;
  std::int64_t warmup_iters = 0;
  std::optional<double> warmup_fraction;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kSchedule};
    v(Option{"lr", "highest learning rate", same}, lr);
    v(Option{"min-lr", "learning rate that the decay ends at", same}, min_lr);
    v(Option{"lr-decay-style", "shape of the decay after the warm-up", same},
      Choice(decay_style, {{"constant", DecayStyle::kConstant},
                           {"linear", DecayStyle::kLinear},
                           {"cosine", DecayStyle::kCosine},
                           {"inverse-square-root", DecayStyle::kInverseSquareRoot}}));
    v(Option{"lr-decay-iters", "steps until min-lr is reached (default: all training steps)", same},
      decay_iters);
    v(Option{"lr-warmup-iters", "steps in which the rate rises from 0 to lr", same}, warmup_iters);
    v(Option{"lr-warmup-fraction", "the same as a fraction of the decay steps", same},
      warmup_fraction);
  }
};

class LearningRate {
 public:
  // `train_iters`: steps of the whole run, the default of --lr-decay-iters. Throws Error(kUsage)
  // naming the flag if a value or combination cannot be.
  LearningRate(const LearningRateOptions& options, std::int64_t train_iters);

  // The rate of the step that follows `steps` >= 0 successful ones.
  double at(std::int64_t steps) const;

  double decay_steps() const { return decay_; }    // D
  double warmup_steps() const { return warmup_; }  // w, a fraction of D need not be whole

 private:
  LearningRateOptions options_;
  double decay_ = 0;
  double warmup_ = 0;
};

}  // namespace piton
