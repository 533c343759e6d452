// The weight decay of each step, as Megatron-core's OptimizerParamScheduler.get_wd computes it.
//
// After n successful steps, with decay s at the start of the run, e at its end, and N steps in the
// run:
//
//   n > N or constant    e
//   otherwise            s + c (e - s),  c = n / N (linear),  c = (1 + cos(pi (1 - n / N))) / 2
//                        (cosine)
//
// Like the learning rate (optim/learning_rate.h), it is a pure function of n, computed in double.
#pragma once

#include "optim/optimizer_options.h"

namespace piton {

class WeightDecay {
 public:
  // `steps`: N; may be fractional. `options` must have passed OptimizerOptions::check().
  WeightDecay(const OptimizerOptions& options, double steps);

  // The weight decay of the step after `steps` >= 0 successful steps, which may be fractional.
  double at(double steps) const;

  bool changes() const { return start_ != end_; }

 private:
  WeightDecayIncrease increase_;
  double start_;
  double end_;
  double steps_;  // N
};

}  // namespace piton
