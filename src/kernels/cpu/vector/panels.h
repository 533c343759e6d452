// Products with fp32 sums on packed operands, for every instruction set.
//
//   right  b[k, n]: panels of `panel` columns one after another. In a panel, row p of b follows row
//          p - 1: as many elements as the panel has columns, which are `panel`, or for the last
//          panel what is left of n, padded to `lanes` with zeros. Elements are fp32, or bf16 or
//          fp16 as they were.
//   left   a[m, k], at most `depth` of k, in fp32: rows `left_stride` apart, or from columns [k,
//   m]:
//          groups of `group` rows one after another, in which column p follows column p - 1.
//
// An element of the product of one call is one chain over k in order, s = a b + s from zero (fused
// where the set has that), which is then added to what was there. So neither the number of rows
// and columns nor the way in which operands are packed touches its bits.
#pragma once

#include <cstddef>

#include "kernels/cpu/vector/table.h"

namespace piton::cpu {

// sums[rows, columns] = left right (+ sums) (+ bias), for the columns of one panel.
struct PanelMultiply {
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // those beyond it are not written
  std::int64_t depth = 0;
  const float* left = nullptr;
  const void* right = nullptr;
  float* sums = nullptr;
  std::int64_t stride = 0;
  bool adds = false;
  const float* bias = nullptr;       // [columns padded to lanes], or none
  const std::byte* ahead = nullptr;  // brought to the second-level cache meanwhile, or none
  std::int64_t ahead_bytes = 0;
};

struct PanelTable {
  std::int64_t lanes = 0;
  std::int64_t panel = 0;
  std::int64_t group = 0;
  std::int64_t depth = 0;
  std::int64_t left_stride = 0;
  std::int64_t part_rows = 0;  // of the left side, that stay in the second-level cache

  // The left side in rows, or in groups; the right side in fp32.
  void (*multiply_rows)(const PanelMultiply& product);
  void (*multiply_groups)(const PanelMultiply& product);
  // The left side in at most `group` rows, the right side a whole panel of bf16.
  void (*multiply_bf16)(const PanelMultiply& product);

  // Panels in the type of the matrix, from b as it is, [k, n], or from its transpose, [n, k].
  void (*pack_right)(void* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
  void (*pack_right_columns)(void* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
  // The first in fp32, from any type.
  void (*pack_right_wide)(float* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
  // Groups from columns [k, m] of any type. Rows that do not exist are not written.
  void (*pack_left)(float* groups, const Matrix& columns, std::int64_t k, std::int64_t m);

  // Elements of n columns of a packed side.
  std::int64_t elements(std::int64_t n, std::int64_t k) const {
    return (n + lanes - 1) / lanes * lanes * k;
  }
};

namespace v2 {
const PanelTable& panel_table();
}
namespace v3 {
const PanelTable& panel_table();
}
namespace v4 {
const PanelTable& panel_table();
}

}  // namespace piton::cpu
