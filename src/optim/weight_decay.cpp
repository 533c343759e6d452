#include "optim/weight_decay.h"

#include <cmath>
#include <numbers>

namespace piton {

WeightDecay::WeightDecay(const OptimizerOptions& options, double steps)
    : increase_(options.weight_decay_increase),
      start_(options.start_weight_decay.value_or(options.weight_decay)),
      end_(options.end_weight_decay.value_or(options.weight_decay)),
      steps_(steps) {}

double WeightDecay::at(double steps) const {
  if (increase_ == WeightDecayIncrease::kConstant || steps > steps_) return end_;
  const double ratio = steps / steps_;
  const double share = increase_ == WeightDecayIncrease::kLinear
                           ? ratio
                           : (std::cos(std::numbers::pi * (1 - ratio)) + 1) / 2;
  return start_ + share * (end_ - start_);
}

}  // namespace piton
