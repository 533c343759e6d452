// The rows of a table, each divided by its length: n = w / |w|. Baichuan-2's head multiplies by
// them (Yang et al. 2023, arXiv:2309.10305, "NormHead"). Padding rows, which are zero, stay zero.
#pragma once

#include <cstdint>

#include "ops/context.h"

namespace piton {

class NormalizedRows {
 public:
  // Enqueues the division of all local rows of `table` [V/t, h].
  NormalizedRows(Context& context, Parameter& table);
  // [V/t, h], plain rows in the dtype of the table.
  WeightView view() const;
  // dtable += (drows - n (n . drows)) / |w|, row by row. Both [V/t, h], fp32 (fp64 for fp64).
  void add_gradient(Context& context, const Tensor& drows, const Tensor& dtable) const;

 private:
  Tensor table_;  // [V/t, h], a copy in fp32 (fp64), in which the division runs
  Tensor gain_;   // [h]
  Tensor rstd_;   // [V/t]
  Tensor rows_;   // [V/t, h], dtype of the table
};

// A cache of the normalized rows for forward passes without gradients. Recomputes them when the
// table's version has changed.
class NormalizedRowsCache {
 public:
  WeightView view(Context& context, Parameter& table);

 private:
  WeightView view_;
  std::uint64_t version_ = 0;
};

}  // namespace piton
