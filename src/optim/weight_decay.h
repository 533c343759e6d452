// The weight decay of each step, as Megatron-core's OptimizerParamScheduler.get_wd computes it.
//
// After n successful steps, with s and e the decay at the start and at the end of the N steps of
// the increase:
//
//   n > N or constant    e
//   otherwise            s + c (e - s),  c = n / N (linear),  c = (1 + cos(pi (1 - n / N))) / 2
//                        (cosine)
//
// A pure function of n, in double, as the learning rate is (optim/learning_rate.h).
#pragma once

#include "optim/optimizer_options.h"

namespace piton {

class WeightDecay {
 public:
  // `steps`: of the increase, all of a run's. `options` are checked.
  WeightDecay(const OptimizerOptions& options, double steps);

  // The decay of the step that follows `steps` >= 0 successful ones, which need not be whole.
  double at(double steps) const;

  bool changes() const { return start_ != end_; }

 private:
  WeightDecayIncrease increase_;
  double start_;
  double end_;
  double steps_;  // N
};

}  // namespace piton
