// Parameter updates and norms over flat spans.
//
// AdamW (Loshchilov & Hutter 2017, arXiv:1711.05101), Megatron's order of operations:
//   g = gradient * gradient_scale
//   main = main * (1 - lr * decay)            decay = kWeightDecay * decay_multiplier
//   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//   main = main - lr * (m / correction1) / (sqrt(v / correction2) + eps)
// with correctionK = 1 - betaK^t.
// Moments in bf16 (Megatron-core's --exp-avg-dtype, --exp-avg-sq-dtype) are rounded after main is
// updated: m to nearest, v up or down by chance, so that its mean is right. To nearest v would
// never fall where 1 - beta2 is below 2^-9, half of the last place of bf16. The chance depends on
// numbers that an element has under every layout:
//   x = bits(gradient) * 0x9E3779B1 + bits(main before) + t * 0x85EBCA6B        modulo 2^32
//   x = lowbias32(x)      (Wellons 2018, "Prospecting for hash functions")
//   v = the upper 16 bits of  bits(v) + (x modulo 2^16)
//
// SGD with momentum (Sutskever et al. 2013), as in torch.optim.SGD and Megatron: no dampening, and
// weight decay is added to the gradient (L2), so the momentum includes it.
//   g = gradient * gradient_scale + decay * main
//   buffer = momentum * buffer + g
//   main = main - lr * buffer
// All arithmetic of both is in fp32.
#pragma once

#include "kernels/call.h"

namespace piton {

// Indices into the fp32 [kStepScalars] tensor of the values that change from step to step.
enum StepScalar : int {
  kLearningRate,   // of this step, before a group's multiplier
  kCorrection1,    // 1 - beta1^t
  kCorrection2,    // 1 - beta2^t
  kGradientScale,  // clip factor / loss scale
  kApply,          // 0: leave everything as it is (non-finite gradients)
  kWeightDecay,    // today's, before a group's multiplier
  kUpdateNumber,   // t, from 1
  kStepScalars
};

struct AdamwUpdate {
  static constexpr std::string_view kName = "adamw";
  Tensor main;    // fp32 [n]  updated
  Tensor first;   // fp32 or bf16 [n]  m, updated
  Tensor second;  // fp32 or bf16 [n]  v, updated
  Tensor
      copy;  // [n] or empty: main rounded to the weights' dtype, written (kept where kApply is 0)
  Tensor gradient;  // fp32 [n]
  Tensor scalars;   // fp32 [kStepScalars]
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double decay_multiplier = 0;  // 0: no decay
  double lr_multiplier = 1;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("main", self.main, Access::kUpdate);
    v("first", self.first, Access::kUpdate);
    v("second", self.second, Access::kUpdate);
    v("copy", self.copy, Access::kUpdate);
    v("gradient", self.gradient, Access::kRead);
    v("scalars", self.scalars, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct SgdUpdate {
  static constexpr std::string_view kName = "sgd";
  Tensor main;    // fp32 [n]  updated
  Tensor buffer;  // fp32 [n]  updated; empty: no momentum
  Tensor
      copy;  // [n] or empty: main rounded to the weights' dtype, written (kept where kApply is 0)
  Tensor gradient;  // fp32 [n]
  Tensor scalars;   // fp32 [kStepScalars]; the corrections are not read
  double momentum = 0;
  double decay_multiplier = 0;  // 0: no decay
  double lr_multiplier = 1;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("main", self.main, Access::kUpdate);
    v("buffer", self.buffer, Access::kUpdate);
    v("copy", self.copy, Access::kUpdate);
    v("gradient", self.gradient, Access::kRead);
    v("scalars", self.scalars, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// A step of one size against the sign of the gradient, which may be 0. No other scalar than kApply
// is read: neither the rate of other parameters nor the scale of the loss. For the bias of a
// router's choices (experts.h, ExcessChoices).
struct SignUpdate {
  static constexpr std::string_view kName = "sign update";
  Tensor main;      // fp32 [n]  updated
  Tensor gradient;  // fp32 [n]
  Tensor scalars;   // fp32 [kStepScalars]
  double rate = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("main", self.main, Access::kUpdate);
    v("gradient", self.gradient, Access::kRead);
    v("scalars", self.scalars, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// A moving average of the weights (Polyak & Juditsky 1992), after their update:
//   average = average + (1 - decay) (main - average)
// Where kApply is 0 it stays.
struct MovingAverage {
  static constexpr std::string_view kName = "moving average";
  Tensor average;  // fp32 [n]  updated
  Tensor main;     // fp32 [n]
  Tensor scalars;  // fp32 [kStepScalars]
  double decay = 0.999;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("average", self.average, Access::kUpdate);
    v("main", self.main, Access::kRead);
    v("scalars", self.scalars, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// sums[i] = sum over elements [i*block, (i+1)*block) of x^2, in fp64, in an order fixed by the size
// of the block.
struct SquareSums {
  static constexpr std::string_view kName = "square sums";
  Tensor sums;  // fp64 [ceil(n / block)]  written
  Tensor x;     // fp32 [n]
  std::int64_t block = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("sums", self.sums, Access::kWrite);
    v("x", self.x, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// Indices into the fp64 [kUpdateCounts] tensor that stays on the device from step to step.
enum UpdateCount : int {
  kUpdates,         // successful ones: the t of the corrections
  kSkipped,         // updates left out because the norm was not finite
  kGradientNorm,    // of the latest gradient, before clipping
  kLossScale,       // of the gradients to come; above 0
  kGoodUpdates,     // in a row, since the loss scale last changed or an update was skipped
  kHysteresisLeft,  // skipped updates that the loss scale still bears
  kUpdateCounts
};

// How the loss scale follows the gradients (Micikevicius et al. 2017, arXiv:1710.03740), by the
// rules of Megatron's DynamicGradScaler.
struct LossScaling {
  bool dynamic = false;  // false: it stays
  double least = 1;
  std::int64_t window = 1000;   // good updates in a row that double it
  std::int64_t hysteresis = 2;  // skipped updates that halve it
};

// Indices into the fp64 history of the spike rule.
enum SpikeHistory : int {
  kSpikeSteps,  // steps whose loss and norm are or were in the rings
  kSpikeLoss,   // of this step; set before BeginUpdate
  kSpikeRings,  // first of [window] losses, then [window] norms
};

// A step whose loss or norm is far above those of the last steps is skipped (OLMo 2,
// arXiv:2501.00656, and OLMo-core's SkipStepOptimizer): above  mean + sigmas deviation  of the last
// `window` finite ones, once there are half as many.
struct SpikeRule {
  Tensor history;  // fp64 [kSpikeRings + 2 window] or empty: no rule  updated
  double sigmas = 6;
};

// What the updates of one step need to know, from the sums of squares of the gradient: on the
// device, so that no step waits for the host.
//   norm = sqrt(sum of sums, in an order fixed by n) / loss scale
//                                           finite and no spike: updates += 1, apply = 1;
//                                           else skipped += 1
//   t = max(updates, 1), correctionK = 1 - betaK^t
//   gradient_scale = (clip > 0 and finite: min(1, clip / (norm + 1e-6)); else 1) / loss scale
// Then the loss scale of the next step, if it is dynamic:
//   not finite  good = 0, left -= 1; left <= 0: scale = max(scale / 2, least)
//   else        good += 1; good = window: good = 0, left = hysteresis, scale *= 2
struct BeginUpdate {
  static constexpr std::string_view kName = "begin update";
  Tensor scalars;  // fp32 [kStepScalars]  updated, except for the learning rate
  Tensor counts;   // fp64 [kUpdateCounts]  updated
  Tensor sums;     // fp64 [n]
  double beta1 = 0.9;
  double beta2 = 0.999;
  double clip = 0;
  LossScaling scaling;
  SpikeRule spikes;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("scalars", self.scalars, Access::kUpdate);
    v("counts", self.counts, Access::kUpdate);
    v("sums", self.sums, Access::kRead);
    v("history", self.spikes.history, Access::kUpdate);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
