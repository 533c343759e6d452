// Parameter updates and norms over flat spans.
//
// AdamW (Loshchilov & Hutter 2017, arXiv:1711.05101), Megatron's order of operations:
//   g = gradient * gradient_scale
//   main = main * (1 - lr * decay)
//   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//   main = main - lr * (m / correction1) / (sqrt(v / correction2) + eps)
// with correctionK = 1 - betaK^t.
//
// SGD with momentum (Sutskever et al. 2013), as in torch.optim.SGD and Megatron: no dampening, and
// weight decay is added to the gradient (L2), so the momentum includes it.
//   g = gradient * gradient_scale + decay * main
//   buffer = momentum * buffer + g
//   main = main - lr * buffer
// All arithmetic is in fp32.
#pragma once

#include "kernels/call.h"

namespace piton {

// Indices into the fp32 [kStepScalars] tensor of the values that change from step to step.
enum StepScalar : int {
  kLearningRate,   // of this step, before a group's multiplier
  kCorrection1,    // 1 - beta1^t
  kCorrection2,    // 1 - beta2^t
  kGradientScale,  // clip factor / loss scale
  kApply,          // 0: change nothing (non-finite gradients)
  kStepScalars
};

struct AdamwUpdate {
  static constexpr std::string_view kName = "adamw";
  Tensor main;    // fp32 [n]  updated
  Tensor first;   // fp32 [n]  m, updated
  Tensor second;  // fp32 [n]  v, updated
  Tensor
      copy;  // [n] or empty: main rounded to the weights' dtype, written (kept where kApply is 0)
  Tensor gradient;  // fp32 [n]
  Tensor scalars;   // fp32 [kStepScalars]
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
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
  double weight_decay = 0;
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

// sums[i] = sum over elements [i*block, (i+1)*block) of x^2, in fp64, in an order that depends only
// on the size of the block.
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
  kUpdates,       // successful updates: t in the corrections
  kSkipped,       // updates skipped because the norm was not finite
  kGradientNorm,  // of the latest gradient, before clipping
  kUpdateCounts
};

// Computes the scalars of one step's updates from the sums of squares of the gradient. It runs on
// the device, so that no step waits for the host.
//   norm = sqrt(sum of sums, in order)      finite: updates += 1, apply = 1; else skipped += 1
//   correctionK = 1 - betaK^max(updates, 1)
//   gradient_scale = clip > 0 and finite: min(1, clip / (norm + 1e-6)); else 1
struct BeginUpdate {
  static constexpr std::string_view kName = "begin update";
  Tensor scalars;  // fp32 [kStepScalars]  updated, except for the learning rate
  Tensor counts;   // fp64 [kUpdateCounts]  updated
  Tensor sums;     // fp64 [n]
  double beta1 = 0.9;
  double beta2 = 0.999;
  double clip = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("scalars", self.scalars, Access::kUpdate);
    v("counts", self.counts, Access::kUpdate);
    v("sums", self.sums, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
