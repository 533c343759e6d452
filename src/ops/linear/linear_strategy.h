// How split linears overlap their products with their collectives (communication over computation).
#pragma once

#include <cstdint>
#include <vector>

namespace piton {

// The product that one rank computes: `rows` of its left matrix after gathering, of the whole
// micro-batch; `in` columns of the left matrix and `out` of the result on this rank.
struct ProductShape {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;

  bool operator==(const ProductShape&) const = default;
};

// In the place of a number of slices: products and collectives are fused (shared_rows.h).
inline constexpr int kFused = -1;

struct ShapeSlices {
  ProductShape shape;
  int slices = 1;  // or kFused

  bool operator==(const ShapeSlices&) const = default;
};

struct LinearStrategy {
  // Rows are cut into this many slices, at multiples of the row tile: one slice is multiplied while
  // another one is gathered or reduced. Products without a collective are not cut. kFused: tile by
  // tile through memory that the ranks share.
  int slices = 1;
  bool sequence_parallel = false;
  std::vector<ShapeSlices> of_shapes = {};  // in place of `slices`
  // Under sequence parallelism a column linear keeps the gathered x, and backward does not gather.
  bool keeps_gathered = false;
  // kFused: also dx of a column linear and its reduce-scatter.
  bool fused_column_backward = false;
  std::int64_t shared_rows = 0;  // of a micro-batch, for which fused linears have shared memory

  bool operator==(const LinearStrategy&) const = default;

  // Slices of the product, or kFused. Shapes that are looked up: column linears in forward; row
  // linears in forward, and under sequence parallelism in backward.
  int slices_of(const ProductShape& shape) const {
    for (const ShapeSlices& one : of_shapes) {
      if (one.shape == shape) return one.slices;
    }
    return slices;
  }

  // Whether any product is fused.
  bool fuses() const {
    for (const ShapeSlices& one : of_shapes) {
      if (one.slices == kFused) return true;
    }
    return slices == kFused;
  }
};

}  // namespace piton
