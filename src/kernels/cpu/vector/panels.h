// Products with fp32 sums on packed operands, for every instruction set.
//
//   right  b[k, n]: panels of `panel` columns, in sequence. In a panel, the rows of b are in
//          sequence, each with as many elements as the panel has columns: `panel`, or for the
//          last panel the rest of n, padded to `lanes` with zeros. Elements are fp32, or bf16 or
//          fp16 as in the weight.
//   left   a[m, k], at most `depth` of k, in fp32: rows `left_stride` apart; or, from columns
//          [k, m], groups of `group` rows in sequence, in which the columns are in sequence.
//
// An element of the product of one call is one chain over k in order, s = a b + s from zero (fused
// if the set has that), which is then added to the old value. So neither the number of rows and
// columns nor the packing of operands affects its bits.
#pragma once

#include <cstddef>

#include "kernels/cpu/vector/table.h"

namespace piton::cpu {

// Memory that is prefetched to the second-level cache during a product: `rows` pieces of `bytes`
// bytes, `stride` bytes apart.
struct PanelAhead {
  const std::byte* data = nullptr;  // or none
  std::int64_t bytes = 0;
  std::int64_t rows = 1;
  std::int64_t stride = 0;
};

// sums[rows, columns] = left right (+ sums) (+ bias), for the columns of one panel, or of several.
struct PanelMultiply {
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // columns after these are not written
  std::int64_t depth = 0;
  const float* left = nullptr;
  const void* right = nullptr;
  std::int64_t panel_bytes = 0;  // from a panel of the right side to the next, of several
  float* sums = nullptr;
  std::int64_t stride = 0;
  bool adds = false;
  const float* bias = nullptr;  // [columns padded to lanes], or none
  PanelAhead ahead = {};
};

struct PanelTable {
  std::int64_t lanes = 0;
  std::int64_t panel = 0;
  std::int64_t group = 0;
  std::int64_t depth = 0;
  std::int64_t left_stride = 0;
  // A weight of 16 bits as plain rows costs products of many rows less than 2 % of their time.
  bool reads_rows = false;
  std::int64_t part_rows = 0;  // rows of the left side that stay in the second-level cache

  // The left side in rows, or in groups; the right side in fp32.
  void (*multiply_rows)(const PanelMultiply& product);
  void (*multiply_groups)(const PanelMultiply& product);
  // The left side in rows, the right side whole panels of fp32 or bf16: one, or
  // panels_at_once(rows).
  void (*multiply_whole)(const PanelMultiply& product, Type type);

  // Packs panels in the type of the matrix, from b itself, [k, n], or from its transpose, [n, k].
  void (*pack_right)(void* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
  void (*pack_right_columns)(void* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
  // The same to fp32, from any type.
  void (*pack_right_wide)(float* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
  void (*pack_right_columns_wide)(float* panels, const Matrix& rows, std::int64_t k,
                                  std::int64_t n);
  // Packs groups from columns [k, m] of any type. Rows that do not exist are not written.
  void (*pack_left)(float* groups, const Matrix& columns, std::int64_t k, std::int64_t m);

  // Panels that multiply_whole() takes at once. The sums of one or two rows by one panel are too
  // few chains of additions: each addition waits for the one before.
  static constexpr std::int64_t panels_at_once(std::int64_t rows) {
    return rows <= 1 ? 4 : rows == 2 ? 2 : 1;
  }

  // Elements of a packed side with n columns.
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
namespace neon {
const PanelTable& panel_table();
}

}  // namespace piton::cpu
