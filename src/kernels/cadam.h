// CAdam, as in AscendSpeed: the sign of a momentum is the update. The momentum is stored in fp16,
// with one fp32 scale for each row (the last dim) of the unsplit parameter; a parameter of one dim
// is one row.
//
//   m = beta * (momentum * scale) + (1 - beta) * (gradient * gradient_scale)       in fp32
//   scale = max over the row of |m| / 65503 + 1e-8
//   momentum = m * (1 / scale), between -65503 and 65503, rounded to fp16
//   main = main * (1 - lr * decay) - lr * sign(m)                                  sign(0) = 0
//
// The largest finite fp16 number is 65504, so no element becomes infinite. A row may be cut over
// ranks. So an update has two calls: the first computes the maxima of the parts of rows that are
// here, and the second needs those of whole rows.
//
// A span is `n` consecutive elements of rows of `columns` elements, from column `first_column` of
// its first row on: ceil((first_column + n) / columns) rows, of which the first and the last may be
// cut.
#pragma once

#include "kernels/optimizer.h"

namespace piton {

inline constexpr double kCadamLargest = 65503;
inline constexpr double kCadamEps = 1e-8;

// Where kApply is 0, all maxima are 0.
struct CadamMaxima {
  static constexpr std::string_view kName = "cadam maxima";
  Tensor maxima;    // fp32 [rows]  written: max |m| of the elements of each row that are here
  Tensor momentum;  // fp16 [n]
  Tensor scales;    // fp32 [rows]
  Tensor gradient;  // fp32 [n]
  Tensor scalars;   // fp32 [kStepScalars]
  std::int64_t columns = 1;
  std::int64_t first_column = 0;
  double beta = 0.965;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("maxima", self.maxima, Access::kWrite);
    v("momentum", self.momentum, Access::kRead);
    v("scales", self.scales, Access::kRead);
    v("gradient", self.gradient, Access::kRead);
    v("scalars", self.scalars, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct CadamUpdate {
  static constexpr std::string_view kName = "cadam update";
  Tensor main;      // fp32 [n]  updated
  Tensor momentum;  // fp16 [n]  updated
  Tensor scales;    // fp32 [rows]  updated
  Tensor
      copy;  // [n] or empty: main rounded to the weights' dtype, written (kept where kApply is 0)
  Tensor maxima;    // fp32 [rows], of whole rows
  Tensor gradient;  // fp32 [n]
  Tensor scalars;   // fp32 [kStepScalars]; the corrections are not read
  std::int64_t columns = 1;
  std::int64_t first_column = 0;
  double beta = 0.965;
  double decay_multiplier = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("main", self.main, Access::kUpdate);
    v("momentum", self.momentum, Access::kUpdate);
    v("scales", self.scales, Access::kUpdate);
    v("copy", self.copy, Access::kUpdate);
    v("maxima", self.maxima, Access::kRead);
    v("gradient", self.gradient, Access::kRead);
    v("scalars", self.scalars, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// Elements [begin, end) of a span that are in row `row` of it.
struct SpanRow {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
inline SpanRow span_row(std::int64_t row, std::int64_t n, std::int64_t columns,
                        std::int64_t first_column) {
  const std::int64_t begin = row * columns - first_column;
  const std::int64_t end = begin + columns;
  return {begin < 0 ? 0 : begin, end > n ? n : end};
}
inline std::int64_t span_rows(std::int64_t n, std::int64_t columns, std::int64_t first_column) {
  return n == 0 ? 0 : (first_column + n + columns - 1) / columns;
}

}  // namespace piton
