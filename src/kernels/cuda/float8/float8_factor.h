// Factors of products in FP8 (kernels/linear.h), as the library multiplies them on Hopper: what is
// contiguous is along the sum. Internal to this folder.
#pragma once

#include <cstdint>

#include "kernels/cuda/context.h"
#include "tensor/float8.h"
#include "tensor/tensor.h"

namespace piton::cuda {

// What has a scale: all numbers, 128 of a row, or squares of 128 x 128.
enum class Float8Scales : std::uint8_t { kWhole, kRows, kSquares };

struct Float8Factor {
  // u8 [rows, depth], both multiples of 16: what is beyond those of the factor is 0.
  Tensor codes;
  // fp32, 1 / s: [1]; of rows [blocks of depth, rows]; of squares [blocks of rows, blocks of depth,
  // up to a multiple of 4].
  Tensor inverses;
  Float8Format format = Float8Format::kE4M3;
  Float8Scales scales = Float8Scales::kWhole;
};

struct FactorForm {
  Float8Format format = Float8Format::kE4M3;
  Float8Scales scales = Float8Scales::kWhole;
  bool transposed = false;  // the sum is along the rows of x, not along its columns
};

// Rounds x [rows, columns], bf16, into scratch.
Float8Factor float8_factor(const Tensor& x, const FactorForm& form, const CallContext& context);

}  // namespace piton::cuda
