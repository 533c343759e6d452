// Linear maps: y = x W^T + bias, W stored [out, in]. Shapes: x [n, in], y [n, out].
//
// Sums run in fp32 for bf16, fp16 and fp32 (in fp64 for fp64). Rows are computed in fixed tiles of
// Kernels::row_tile() rows, so that a call on rows cut at tile edges gives the same bits as the
// call on all of them. On a GPU this holds for calls of more than 16 rows: a call of fewer may sum
// in the order of decoding (kernels/cuda/linear/few_row_product.h). n may be 0.
//
// Several experts are one call (kernels/experts.h): the weight is of m matrices, dweight is
// [m out, in], and rows first_rows[i] .. first_rows[i + 1] - 1 are multiplied with matrix i.
// first_rows is int32 [m + 1] on the device, from 0 to at most n; a bias is [m out], and so is
// dbias. Rows from first_rows[m] on are neither read nor written.
//
// With `float8` both factors of a product are rounded to 8 bits (tensor/float8.h): from v to q / s,
// where q is v times the scale s, rounded, and 1 / s is rounded to fp32. x and W become E4M3, dy
// the format for gradients. Sums, biases, residuals and results are those of other products of
// these numbers; dbias is the sum of dy before it is rounded. A scale is that of
//   tensorwise   all elements of the factor
//   blockwise    128 elements along the sum: of a row of x in forward, of a row of dy for dx, of a
//                column of x and of dy for dW; 128 x 128 elements of W, counted from its corner.
//                Scales are powers of two. Blocks at the end may be smaller
// Of a tensor that is cut into several calls, each call has scales of its part. Only for bf16, with
// the weight as kRows, and not for experts.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/activation.h"
#include "kernels/call.h"
#include "tensor/float8.h"

namespace piton {

enum class Float8Recipe : std::uint8_t { kNone, kTensorwise, kBlockwise };

inline constexpr std::int64_t kFloat8Block = 128;

// How the factors of a product are rounded to 8 bits, if they are.
struct Float8Products {
  Float8Recipe recipe = Float8Recipe::kNone;
  Float8Format gradients = Float8Format::kE4M3;  // of dy

  bool given() const { return recipe != Float8Recipe::kNone; }
  bool operator==(const Float8Products&) const = default;
};

// y = x W^T + bias + residual, or the activation of that sum; all parts except x and W are
// optional. The sum stays in fp32 (fp64) until it is complete: y is rounded once, and the
// activation reads the unrounded sum, not the rounded `preactivation`.
struct LinearForward {
  static constexpr std::string_view kName = "linear forward";
  Tensor y;           // [n, out]  written; dtype of x, or fp32
  Tensor x;           // [n, in]   rows may be strided, columns are contiguous
  WeightView weight;  // kRows, kCodes or kForward; dtype of x
  Tensor bias;        // [m out] or empty; dtype of x
  Tensor residual;    // [n, out] or empty; dtype of y; rows may be strided; may be the same memory
                      // as y or preactivation
  std::optional<ActivationKind> activation;
  Tensor preactivation;  // [n, out] or empty  written; dtype of y: for the activation's backward
  Tensor first_rows;     // of experts, or empty
  Float8Products float8;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("x", self.x, Access::kRead);
    v("weight", self.weight.tensor, Access::kRead);
    WeightCodes::tensors(self.weight.codes, v);
    v("bias", self.bias, Access::kRead);
    v("residual", self.residual, Access::kRead);
    v("preactivation", self.preactivation, Access::kWrite);
    v("first rows", self.first_rows, Access::kRead);
  }
  void check() const;
  double flops() const;
};

// The first linear of a gated MLP, y = act(gate) * up (kernels/activation.h): gate is the first
// half of the columns of x W^T + bias and up the other one, each rounded to the type of y. The bits
// are those of product() and end().
struct GatedLinear {
  static constexpr std::string_view kName = "gated linear";
  Tensor y;           // [n, out/2]  written; dtype of x
  Tensor x;           // [n, in]   rows may be strided, columns are contiguous
  WeightView weight;  // kRows, kCodes or kForward; dtype of x; one matrix
  Tensor bias;        // [out] or empty; dtype of x
  ActivationKind kind = ActivationKind::kSilu;
  GateRule gate = {};

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("x", self.x, Access::kRead);
    v("weight", self.weight.tensor, Access::kRead);
    WeightCodes::tensors(self.weight.codes, v);
    v("bias", self.bias, Access::kRead);
  }
  void check() const;
  double flops() const;

  // The two calls that do the same with gate_up [n, out] in between.
  LinearForward product(const Tensor& gate_up) const;
  ActivationForward end(const Tensor& gate_up) const;
};

// dx = dy W + residual, rounded once
struct LinearBackwardInput {
  static constexpr std::string_view kName = "linear backward input";
  Tensor dx;  // [n, in]   written; dtype of dy, or of x if dy is fp32
  Tensor dy;  // [n, out]  rows may be strided; may be fp32 with a bf16 weight (logits): it may be
              // rounded to bf16 before the product
  WeightView weight;  // kRows, kCodes or kBackward
  Tensor residual;    // [n, in] or empty; dtype of dx; rows may be strided; may be the same memory
                      // as dx
  Tensor first_rows;  // of experts, or empty
  Float8Products float8;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dx", self.dx, Access::kWrite);
    v("dy", self.dy, Access::kRead);
    v("weight", self.weight.tensor, Access::kRead);
    WeightCodes::tensors(self.weight.codes, v);
    v("residual", self.residual, Access::kRead);
    v("first rows", self.first_rows, Access::kRead);
  }
  void check() const;
  double flops() const;
};

// dW += dy^T x, dbias += sum of dy over rows. The order of the sum over rows depends only on n.
struct LinearBackwardWeight {
  static constexpr std::string_view kName = "linear backward weight";
  Tensor dweight;  // [out, in]  fp32 (fp64 for fp64), ADDED TO, unless `overwrites`
  Tensor dbias;    // [m out] or empty, as dweight, ADDED TO
  Tensor dy;  // [n, out]   rows may be strided; may be fp32 with a bf16 x: then it is rounded first
  Tensor x;   // [n, in]    rows may be strided
  bool overwrites = false;  // dW = dy^T x: what dweight holds is not read
  Tensor first_rows;        // of experts, or empty
  Float8Products float8;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dweight", self.dweight, self.overwrites ? Access::kWrite : Access::kUpdate);
    v("dbias", self.dbias, Access::kUpdate);
    v("dy", self.dy, Access::kRead);
    v("x", self.x, Access::kRead);
    v("first rows", self.first_rows, Access::kRead);
  }
  void check() const;
  double flops() const;
};

// Packs plain rows into the back end's own layout. Only if Kernels::packed_bytes() is not 0.
struct PackWeight {
  static constexpr std::string_view kName = "pack weight";
  Tensor packed;  // u8 [m packed_bytes]  written
  Tensor rows;    // [m out, in]
  WeightForm form = WeightForm::kForward;
  std::int64_t matrices = 1;  // m, each packed by itself

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("packed", self.packed, Access::kWrite);
    v("rows", self.rows, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// Converts codes into plain rows, for back ends that do not read codes. Each value is computed in
// fp32 (fp64 for fp64 rows) and rounded once.
struct ExpandWeight {
  static constexpr std::string_view kName = "expand weight";
  Tensor rows;  // [out, in]  written; floating
  WeightCodes codes;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("rows", self.rows, Access::kWrite);
    WeightCodes::tensors(self.codes, v);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
