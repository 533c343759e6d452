// Loops over the elements of matrices, several neighbors at a time. Internal to this folder.
#pragma once

#include <bit>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector.cuh"

namespace piton::cuda {

// Division of numbers below 2^31 by one that the host knows: a product and a shift, because a
// processor of a GPU has no division of integers. With d <= 2^l and the product of x and
// ceil(2^(31 + l) / d), the error is below x d / 2^(31 + l) < 1 / d (Granlund & Montgomery 1994).
class Division {
 public:
  Division() = default;
  explicit Division(std::int64_t divisor) : divisor_(static_cast<std::uint32_t>(divisor)) {
    PITON_ASSERT(divisor > 0 && divisor <= kLargest, "cuda: division by {}", divisor);
    shift_ = 31 + std::bit_width(divisor_ - 1);
    factor_ = ((std::uint64_t{1} << shift_) + divisor_ - 1) / divisor_;
  }
  __device__ std::uint32_t quotient(std::uint32_t x) const {
    return static_cast<std::uint32_t>((x * factor_) >> shift_);
  }
  __device__ std::uint32_t rest(std::uint32_t x, std::uint32_t quotient) const {
    return x - quotient * divisor_;
  }
  static constexpr std::int64_t kLargest = (std::int64_t{1} << 31) - 1;

 private:
  std::uint32_t divisor_ = 1;
  int shift_ = 31;
  std::uint64_t factor_ = std::uint64_t{1} << 31;  // below 2^32
};

// What a loop runs over.
struct Extent {
  std::int64_t rows;
  std::int64_t columns;
  bool vectors;  // Body::kVector columns at a time: vectors_fit() of all that the body accesses
};

// body.run<kCount>(row, column) computes elements column .. column + kCount - 1 of a row. kCount is
// 1, or Body::kVector with a column that is a multiple of it. Both have to give the same bits.
// A body may have `used`, const std::int32_t* or nullptr: then the loop ends at row *used
// (kernels/call.h, rows_used()). The threads of later rows, whose number the host does not know,
// end at once.
template <typename Body>
struct Groups {
  Body body;
  std::int64_t first_row;
  std::int64_t columns;
  std::uint32_t count;  // groups of columns of all rows
  Division in_row;
  bool vectors;
};

template <typename Body>
__global__ void __launch_bounds__(kThreads, kBlocks) run_groups(Groups<Body> groups) {
  wait_for_previous();
  let_next_start();
  const std::uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= groups.count) return;
  const std::uint32_t quotient = groups.in_row.quotient(index);
  const std::int64_t row = groups.first_row + quotient;
  if constexpr (requires { groups.body.used; }) {
    if (groups.body.used != nullptr && row >= *groups.body.used) return;
  }
  std::int64_t column = groups.in_row.rest(index, quotient);
  if (!groups.vectors) {
    groups.body.template run<1>(row, column);
    return;
  }
  column *= Body::kVector;
  if (column + Body::kVector <= groups.columns) {
    groups.body.template run<Body::kVector>(row, column);
    return;
  }
  for (; column < groups.columns; ++column) groups.body.template run<1>(row, column);
}

// In any order. One thread handles one group: with loads of 16 bytes, the threads that a
// multiprocessor holds have more bytes in flight than memory needs.
template <typename Body>
void launch_rows(std::string_view name, const Extent& extent, const Body& body,
                 cudaStream_t stream) {
  if (extent.rows == 0 || extent.columns == 0) return;
  const std::int64_t width = extent.vectors ? Body::kVector : 1;
  const std::int64_t in_row = (extent.columns + width - 1) / width;
  const std::int64_t most_rows = std::max<std::int64_t>(1, Division::kLargest / in_row);
  for (std::int64_t row = 0; row < extent.rows; row += most_rows) {
    const std::int64_t count = std::min(most_rows, extent.rows - row) * in_row;
    launch(
        name, run_groups<Body>,
        {.blocks = {static_cast<unsigned>((count + kThreads - 1) / kThreads), 1, 1}, .early = true},
        Groups<Body>{.body = body,
                     .first_row = row,
                     .columns = extent.columns,
                     .count = static_cast<std::uint32_t>(count),
                     .in_row = Division(in_row),
                     .vectors = extent.vectors},
        stream);
  }
}

// The extent of a matrix, of which every tensor is accessed by rows of `like`.
inline Extent rows_of(const Tensor& like, int vector, std::initializer_list<Tensor> tensors) {
  return {.rows = like.dim(0), .columns = like.dim(1), .vectors = vectors_fit(vector, tensors)};
}

// Contiguous tensors of one size, as one row.
inline Extent flat(int vector, std::initializer_list<Tensor> tensors) {
  Extent extent{.rows = 1, .columns = tensors.begin()->elements(), .vectors = true};
  for (const Tensor& tensor : tensors) {
    extent.vectors =
        extent.vectors && (!tensor.defined() || vectors_fit(vector, {tensor.flatten()}));
  }
  return extent;
}

}  // namespace piton::cuda
