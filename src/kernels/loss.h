// Cross entropy over a vocabulary that may be split over ranks: three calls, with one gather
// between the first two.
//
//   statistics  each rank, its columns:  m = max, z = sum exp(x - m), t = the label's logit or 0
//   combine     from all ranks' [t, n, 3]:  lse = M + log sum z exp(m - M);  loss = lse - sum of t
//   backward    dlogits = (exp(x - lse) - onehot) * mask * scale; 0 if the label is negative
// Columns from `valid` on are padding: they are ignored, and their gradient is 0.
#pragma once

#include "kernels/call.h"

namespace piton {

struct LossStatistics {
  static constexpr std::string_view kName = "loss statistics";
  Tensor statistics;  // [n, 3]  written, fp32 (fp64): m, z, t
  Tensor logits;      // [n, columns]  fp32 (fp64)
  Tensor labels;      // int32 [n]; negative: no label
  std::int64_t vocabulary_begin = 0;
  std::int64_t valid = 0;  // columns of this rank that are not padding; may be 0

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("statistics", self.statistics, Access::kWrite);
    v("logits", self.logits, Access::kRead);
    v("labels", self.labels, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct LossCombine {
  static constexpr std::string_view kName = "loss combine";
  Tensor loss;  // [n]     written, fp32 (fp64): before the mask; 0 if the label is negative
  Tensor lse;   // [n]     written, fp32 (fp64)
  Tensor sum;   // fp64 [1]  ADDED TO: mask * loss in row order, so that the rows may be split over
                // several calls
  Tensor statistics;  // [ranks, n, 3]
  Tensor labels;      // int32 [n]
  Tensor mask;        // fp32 [n]

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("loss", self.loss, Access::kWrite);
    v("lse", self.lse, Access::kWrite);
    v("sum", self.sum, Access::kUpdate);
    v("statistics", self.statistics, Access::kRead);
    v("labels", self.labels, Access::kRead);
    v("mask", self.mask, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct LossBackward {
  static constexpr std::string_view kName = "loss backward";
  Tensor dlogits;  // [n, columns]  written; fp32 or the activations' dtype; may be logits' memory
  Tensor logits;   // [n, columns]  fp32 (fp64)
  Tensor lse;      // [n]
  Tensor labels;   // int32 [n]
  Tensor mask;     // fp32 [n]
  Tensor scale;    // fp32 (fp64) [1], on the device: loss scale / tokens of the global batch
  std::int64_t vocabulary_begin = 0;
  std::int64_t valid = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dlogits", self.dlogits, Access::kWrite);
    v("logits", self.logits, Access::kRead);
    v("lse", self.lse, Access::kRead);
    v("labels", self.labels, Access::kRead);
    v("mask", self.mask, Access::kRead);
    v("scale", self.scale, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
