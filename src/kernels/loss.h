// Cross entropy over a vocabulary that may be split over ranks: three calls, with one gather
// between the first two.
//
//   statistics  each rank, its columns:  m = max, z = sum exp(x - m), t = the label's logit or 0
//   combine     from all ranks' [t, n, 3]:  lse = M + log sum z exp(m - M);  loss = lse - sum of t
//   backward    dlogits = (exp(x - lse) - onehot) * mask * scale; 0 if the label is negative
// Columns from `valid` on are padding: they are ignored, and their gradient is 0.
//
// Regression: of a head with one id, and a label that is not it, combine gives the logit y. Between
// combine and backward the loss becomes (y - target)^2, and the mask of backward 2 (y - target)
// times the mask.
//
// Several labels of a text: the mean binary cross entropy over the L labels, some of which a rank
// has as columns, in the calls of both ends (BCEWithLogitsLoss). y is 1 for a label that the text
// has:
//
//   statistics  m = 0, z = 1 of the rank that has label 0, else 0,
//               t = sum (y log sigmoid(x) + (1 - y) log(1 - sigmoid(x))) / L
//   combine     so that lse = 0, and the loss - sum of t
//   backward    dlogits = (sigmoid(x) - y) / L * mask * scale
//
// Distillation (Hinton et al. 2015, arXiv:1503.02531) mixes cross entropy with the divergence from
// a teacher's distribution, both at a temperature T, with x and y the logits of model and teacher:
//
//   p = softmax(x / T), q = softmax(y / T),  D = sum q (log q - log p)
//   loss = (1 - w) cross entropy + w T^2 D
//   dlogits = ((1 - w) (softmax(x) - onehot) + w T (p - q)) * mask * scale
//
// Three calls more in the same way; the statistics of a part of the columns are, with a = x / T and
// b = y / T: max a, sum exp(a - max a), max b, sum exp(b - max b), sum exp(b - max b) (b - a).
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

// The likeliest id of each row, by its logits. Its largest logit is that of LossStatistics.
struct LargestLogits {
  static constexpr std::string_view kName = "largest logits";
  Tensor ids;     // int32 [n]  written: the lowest id with the largest logit of the valid columns
  Tensor logits;  // [n, columns]  fp32 (fp64)
  std::int64_t vocabulary_begin = 0;  // the id of column 0
  std::int64_t valid = 0;             // as in LossStatistics; if it is 0, ids are vocabulary_begin

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("ids", self.ids, Access::kWrite);
    v("logits", self.logits, Access::kRead);
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

// The loss of numbers, in the place of the sum of LossCombine.
struct SquaredLoss {
  static constexpr std::string_view kName = "squared loss";
  Tensor loss;     // [n]  fp32 (fp64): the numbers, replaced by their losses, before the mask
  Tensor weights;  // fp32 [n]  written: mask * d loss / d number; may not be mask's memory
  Tensor sum;      // fp64 [1]  ADDED TO: mask * loss in row order
  Tensor targets;  // fp32 [n]
  Tensor mask;     // fp32 [n]

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("loss", self.loss, Access::kUpdate);
    v("weights", self.weights, Access::kWrite);
    v("sum", self.sum, Access::kUpdate);
    v("targets", self.targets, Access::kRead);
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

struct BinaryLossStatistics {
  static constexpr std::string_view kName = "binary loss statistics";
  Tensor statistics;                  // [n, 3]  written, fp32 (fp64): of LossCombine
  Tensor logits;                      // [n, columns]  fp32 (fp64)
  Tensor labels;                      // int32 [n]: the row of `sets`; negative: the row has no loss
  Tensor sets;                        // u8 [k, L]: 1 for each label of a text, else 0
  std::int64_t vocabulary_begin = 0;  // the label of column 0
  std::int64_t valid = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("statistics", self.statistics, Access::kWrite);
    v("logits", self.logits, Access::kRead);
    v("labels", self.labels, Access::kRead);
    v("sets", self.sets, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct BinaryLossBackward {
  static constexpr std::string_view kName = "binary loss backward";
  Tensor dlogits;  // [n, columns]  written; fp32 or the activations' dtype; may be logits' memory
  Tensor logits;   // [n, columns]  fp32 (fp64)
  Tensor labels;   // as in BinaryLossStatistics
  Tensor sets;
  Tensor mask;   // fp32 [n]
  Tensor scale;  // fp32 (fp64) [1], as in LossBackward
  std::int64_t vocabulary_begin = 0;
  std::int64_t valid = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dlogits", self.dlogits, Access::kWrite);
    v("logits", self.logits, Access::kRead);
    v("labels", self.labels, Access::kRead);
    v("sets", self.sets, Access::kRead);
    v("mask", self.mask, Access::kRead);
    v("scale", self.scale, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct TeacherStatistics {
  static constexpr std::string_view kName = "teacher statistics";
  Tensor statistics;  // [n, 5]  written, fp32 (fp64)
  Tensor logits;      // [n, columns]  fp32 (fp64): x
  Tensor teacher;     // [n, columns]  the same: y
  double temperature = 1;
  std::int64_t valid = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("statistics", self.statistics, Access::kWrite);
    v("logits", self.logits, Access::kRead);
    v("teacher", self.teacher, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct TeacherCombine {
  static constexpr std::string_view kName = "teacher combine";
  Tensor loss;        // [n]     cross entropy before, the mixed loss after
  Tensor lse;         // [n, 2]  written: of x / T and of y / T
  Tensor sum;         // fp64 [1]  ADDED TO: mask * loss
  Tensor divergence;  // fp64 [1]  ADDED TO: mask * D
  Tensor statistics;  // [ranks, n, 5]
  Tensor labels;      // int32 [n]; loss and D are 0 where it is negative
  Tensor mask;        // fp32 [n]
  double temperature = 1;
  double weight = 0;  // w

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("loss", self.loss, Access::kUpdate);
    v("lse", self.lse, Access::kWrite);
    v("sum", self.sum, Access::kUpdate);
    v("divergence", self.divergence, Access::kUpdate);
    v("statistics", self.statistics, Access::kRead);
    v("labels", self.labels, Access::kRead);
    v("mask", self.mask, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct TeacherBackward {
  static constexpr std::string_view kName = "teacher backward";
  Tensor dlogits;  // [n, columns]  written; fp32 or the activations' dtype; may be logits' memory
  Tensor logits;   // [n, columns]
  Tensor teacher;  // [n, columns]
  Tensor lse;      // [n]     of x
  Tensor lse_at_temperature;  // [n, 2]  of TeacherCombine
  Tensor labels;
  Tensor mask;
  Tensor scale;  // fp32 (fp64) [1]
  double temperature = 1;
  double weight = 0;
  std::int64_t vocabulary_begin = 0;
  std::int64_t valid = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dlogits", self.dlogits, Access::kWrite);
    v("logits", self.logits, Access::kRead);
    v("teacher", self.teacher, Access::kRead);
    v("lse", self.lse, Access::kRead);
    v("lse at temperature", self.lse_at_temperature, Access::kRead);
    v("labels", self.labels, Access::kRead);
    v("mask", self.mask, Access::kRead);
    v("scale", self.scale, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
