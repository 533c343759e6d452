// Tiles of rows in shared memory, in 16-bit types, and the products of a warp with them on tensor
// cores: for heads of at most 16 kSteps channels. Internal to this folder.
#pragma once

#include <utility>

#include "kernels/cuda/attention/async_copy.cuh"
#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/attention/tensor_cores.cuh"

namespace piton::cuda {

inline constexpr int kTensorTile = 64;  // rows of a tile
inline constexpr int kTensorThreads = kTensorTile / 16 * kWarp;
inline constexpr float kLogE2 = 1.44269504088896340736F;  // log2(e)

// Numbers from one row of a tile to the next. The 16 bytes in addition keep rows of one column in
// different banks.
template <int kSteps>
inline constexpr int kTensorPitch = 16 * kSteps + 8;
template <int kSteps>
inline constexpr int kTensorNumbers = kTensorTile* kTensorPitch<kSteps>;  // of a tile

// Whether all rows of heads begin at multiples of 16 bytes.
inline bool in_vectors(const Tensor& tensor) {
  auto bits = reinterpret_cast<std::uintptr_t>(tensor.raw());
  for (int dim = 0; dim + 1 < tensor.ndim(); ++dim) {
    if (tensor.dim(dim) > 1)
      bits |= static_cast<std::uintptr_t>(tensor.stride(dim) * size_bytes(tensor.dtype()));
  }
  return bits % sizeof(uint4) == 0;
}

// Copies `count` rows of d channels, at least one, into a tile; all else of it becomes 0. All
// kTensorThreads threads of the block call it; the tile is there after wait_for_copies() and a
// barrier. `row_of(i)` is row i: an address, or CodedHeadRow. `vectors`: in_vectors().
template <typename T, int kSteps, typename RowOf>
__device__ void load_rows(T* tile, int count, std::int64_t d, bool vectors, const RowOf& row_of) {
  constexpr int kInVector = static_cast<int>(sizeof(uint4) / sizeof(T));
  constexpr int kVectors = 16 * kSteps / kInVector;  // of a row
  if constexpr (std::is_pointer_v<decltype(row_of(0))>) {
    if (vectors) {
#pragma unroll(kSteps > 4 ? 1 : 2)  // addresses of all would take many registers
      for (int i = 0; i < kTensorTile * kVectors / kTensorThreads; ++i) {
        const int vector = i * kTensorThreads + static_cast<int>(threadIdx.x);
        const int row = vector / kVectors;
        const int c = vector % kVectors * kInVector;
        const int left = static_cast<int>(d) - c;  // channels
        const bool any = row < count && left > 0;
        const T* from = any ? row_of(row) + c : row_of(0);
        start_copy(tile + row * kTensorPitch<kSteps> + c, from,
                   !any               ? 0
                   : left > kInVector ? static_cast<int>(sizeof(uint4))
                                      : left * static_cast<int>(sizeof(T)));
      }
      return;
    }
  }
  for (int i = static_cast<int>(threadIdx.x); i < kTensorTile * kVectors; i += kTensorThreads) {
    const int row = i / kVectors;
    const int c = i % kVectors * kInVector;
    T* to = tile + row * kTensorPitch<kSteps> + c;
    if (row < count) {
      const auto from = row_of(row);
      for (int j = 0; j < kInVector; ++j) to[j] = c + j < d ? from[c + j] : narrow<T>(0.0F);
    } else {
      *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
    }
  }
}

// Of the first `count` queries of a tile, as query_range().
__device__ inline Positions range_of_tile(const KeySight& sight, std::int64_t sample,
                                          std::int64_t begin, int count) {
  Positions range = query_range(sight, sample, begin, count < kWarp ? count : kWarp);
  for (int first = kWarp; first < count; first += kWarp) {
    const int left = count - first;
    const Positions rest = query_range(sight, sample, begin + first, left < kWarp ? left : kWarp);
    if (rest.first < range.first) range.first = rest.first;
    if (rest.last > range.last) range.last = rest.last;
    if (rest.reach > range.reach) range.reach = rest.reach;
  }
  return range;
}

// body(0), body(1), ... body(kCount - 1), each as separate code: an index that is not known to the
// compiler would put an array into memory.
template <int kCount, typename Body>
__device__ void for_each_block(const Body& body) {
  [&]<int... j>(std::integer_sequence<int, j...>) { (body(j), ...); }
  (std::make_integer_sequence<int, kCount>{});
}

// The first 16 rows at `rows`, as the left side of products.
template <typename T, int kSteps>
__device__ void read_left(std::uint32_t (&left)[kSteps][4], const T* rows) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  for (int s = 0; s < kSteps; ++s)
    load_matrices<false>(left[s], rows + lane % 16 * kTensorPitch<kSteps> + 16 * s + lane / 16 * 8);
}

// products[j] = the 16 rows of `left` times rows 8 j .. 8 j + 7 at `rows`.
template <typename T, int kSteps, int kCount>
__device__ void multiply_by_rows(float (&products)[kCount][4],
                                 const std::uint32_t (&left)[kSteps][4], const T* rows) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const T* row = rows + (lane % 8 + lane / 16 * 8) * kTensorPitch<kSteps> + lane / 8 % 2 * 8;
  for (int j = 0; j < kCount; ++j) {
    for (int e = 0; e < 4; ++e) products[j][e] = 0;
  }
  for (int s = 0; s < kSteps; ++s) {
    for (int j = 0; j < kCount; j += 2) {
      std::uint32_t right[4];
      load_matrices<false>(right, row + 8 * j * kTensorPitch<kSteps> + 16 * s);
      multiply_fragments<T>(products[j], left[s], right);
      multiply_fragments<T>(products[j + 1], left[s], right + 2);
    }
  }
}

// As multiply_by_rows(), with the first 16 rows at `left`: for kernels without registers for them.
template <typename T, int kSteps, int kCount>
__device__ void multiply_rows_by_rows(float (&products)[kCount][4], const T* left, const T* rows) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const T* row = rows + (lane % 8 + lane / 16 * 8) * kTensorPitch<kSteps> + lane / 8 % 2 * 8;
  const T* left_row = left + lane % 16 * kTensorPitch<kSteps> + lane / 16 * 8;
  for (int j = 0; j < kCount; ++j) {
    for (int e = 0; e < 4; ++e) products[j][e] = 0;
  }
  for (int s = 0; s < kSteps; ++s) {
    std::uint32_t step[4];
    load_matrices<false>(step, left_row + 16 * s);
    for (int j = 0; j < kCount; j += 2) {
      std::uint32_t right[4];
      load_matrices<false>(right, row + 8 * j * kTensorPitch<kSteps> + 16 * s);
      multiply_fragments<T>(products[j], step, right);
      multiply_fragments<T>(products[j + 1], step, right + 2);
    }
  }
}

// sums += weights [16, 8 kCount], rounded to T, times the rows at `rows`.
template <typename T, int kSteps, int kCount>
__device__ void add_weighted(float (&sums)[2 * kSteps][4], const float (&weights)[kCount][4],
                             const T* rows) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const T* row = rows + lane % 16 * kTensorPitch<kSteps> + lane / 16 * 8;
  for (int j = 0; j < kCount; j += 2) {
    const auto& before = weights[j];
    const auto& behind = weights[j + 1];
    const std::uint32_t left[4] = {
        rounded_pair<T>(before[0], before[1]), rounded_pair<T>(before[2], before[3]),
        rounded_pair<T>(behind[0], behind[1]), rounded_pair<T>(behind[2], behind[3])};
    for (int s = 0; s < kSteps; ++s) {
      std::uint32_t right[4];
      load_matrices<true>(right, row + 8 * j * kTensorPitch<kSteps> + 16 * s);
      multiply_fragments<T>(sums[2 * s], left, right);
      multiply_fragments<T>(sums[2 * s + 1], left, right + 2);
    }
  }
}

// Of the 16 rows of a warp, `count` that are written, row i from first + i stride on, with the sums
// of rows g and g + 8 times their factors.
template <typename T>
struct WrittenRows {
  T* first;
  std::int64_t stride;
  int count;
  std::int64_t d;
  float factor[2];

  // Whether each row begins at a multiple of 4 bytes.
  __device__ bool in_pairs() const {
    return (reinterpret_cast<std::uintptr_t>(first) | static_cast<std::uintptr_t>(2 * stride)) %
               sizeof(std::uint32_t) ==
           0;
  }
};

template <typename T, int kSteps>
__device__ void write_sums(const float (&sums)[2 * kSteps][4], const WrittenRows<T>& rows) {
  const bool pairs = rows.in_pairs();
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  for (int i = 0; i < 2; ++i) {
    const int row = lane / 4 + 8 * i;
    if (row >= rows.count) continue;
    T* to = rows.first + row * rows.stride;
    for_each_block<2 * kSteps>([&](int n) {
      const int c = 8 * n + lane % 4 * 2;
      const float low = rows.factor[i] * sums[n][2 * i];
      const float high = rows.factor[i] * sums[n][2 * i + 1];
      if (pairs && c + 1 < rows.d) {
        *reinterpret_cast<std::uint32_t*>(to + c) = rounded_pair<T>(low, high);
      } else {
        if (c < rows.d) to[c] = narrow<T>(low);
        if (c + 1 < rows.d) to[c + 1] = narrow<T>(high);
      }
    });
  }
}

}  // namespace piton::cuda
