// Tiles of 64 rows of a head in shared memory, and the products of a warpgroup with them: for heads
// of at most 16 kSteps channels, kSteps 4 or 8. Internal to this folder.
//
// Channels 64 b .. 64 b + 63 of all rows are block b of a tile, in the form that
// warpgroup_products.cuh describes.
#pragma once

#include "kernels/cuda/attention/tensor_tiles.cuh"
#include "kernels/cuda/attention/warpgroup/warpgroup_products.cuh"

namespace piton::cuda {

static_assert(kTensorTile == kGroupRows);

inline constexpr int kTileBlock = kGroupRows * kTileNumbers;  // numbers of a block of a tile
template <int kSteps>
inline constexpr int kGroupTile = kSteps / 4 * kTileBlock;  // numbers of a tile

// Rows of a head in global memory, which begin at multiples of 16 bytes.
template <typename T>
struct GlobalRows {
  const T* first;
  std::int64_t stride;
  int count;  // those behind are 0; at most 0: none
  std::int64_t d;
  const T* aligned;  // what takes the place of rows that are not there
};

// Starts to copy 64 rows into a tile, by all kBlockThreads threads of the block. A thread has the
// same channels of every few rows.
template <typename T, int kSteps, int kBlockThreads>
__device__ void load_group_tile(T* tile, const GlobalRows<T>& rows) {
  constexpr int kInVector = static_cast<int>(sizeof(uint4) / sizeof(T));
  constexpr int kVectors = 16 * kSteps / kInVector;  // of a row
  constexpr int kAtOnce = kBlockThreads / kVectors;  // rows
  static_assert(kBlockThreads % kVectors == 0 && kAtOnce % 8 == 0);
  const int place = static_cast<int>(threadIdx.x) % kVectors;
  const int first = static_cast<int>(threadIdx.x) / kVectors;
  const int left = static_cast<int>(rows.d) - place * kInVector;  // channels
  const int bytes = left > kInVector ? static_cast<int>(sizeof(uint4))
                                     : (left > 0 ? left * static_cast<int>(sizeof(T)) : 0);
  const T* from = rows.first + first * rows.stride + place * kInVector;
  T* to =
      tile + place / 8 * kTileBlock + first * kTileNumbers + (place % 8 ^ first % 8) * kInVector;
  constexpr int kTurns = (kGroupRows + kAtOnce - 1) / kAtOnce;
#pragma unroll(kSteps > 4 ? kTurns : 1)  // three groups have few registers
  for (int i = 0; i < kTurns; ++i) {
    const int row = first + i * kAtOnce;
    if (kGroupRows % kAtOnce != 0 && row >= kGroupRows) break;
    const bool any = row < rows.count;  // other addresses may not be aligned
    start_copy(to, any ? from : rows.aligned, any ? bytes : 0);
    from += kAtOnce * rows.stride;
    to += kAtOnce * kTileNumbers;
  }
}

// A tile of keys, as a warpgroup of queries sees it.
struct SeenKeys {
  int first;
  bool seen;     // some query may see one of them
  bool covered;  // 64 keys, and each query sees each of them
};

// The tile that begins with key `first`, of `keys`. `range`: of the queries; `used`: there are
// some.
__device__ inline SeenKeys seen_keys(const KeySight& sight, std::int64_t sample, int first,
                                     std::int64_t keys, const ShortPositions& range, bool used) {
  const int count = static_cast<int>(keys - first < kTensorTile ? keys - first : kTensorTile);
  const std::int64_t low = sight.key_position(sample, first);
  const std::int64_t high = sight.key_position(sample, first + count - 1);
  return {first, used && sight.meets(range.wide(), low, high),
          count == kTensorTile && sight.covers(range.wide(), low, high)};
}

// The tiles of keys of a block, two of which are copied ahead. load(stage, begin) starts to copy
// the first tile from key `begin` on that is needed, and returns its first key, or -1: there is
// none.
struct KeyWalk {
  // Tiles in shared memory: of this step, of the one before, and of the next two.
  static constexpr int kStages = 4;
  SeenKeys now{};   // the tile of this step
  SeenKeys next{};  // the one after it; first is -1: there is none
  int after = -1;   // the first key of the tile after the next one; -1: there is none
  int stage = -1;   // of this step

  __device__ bool more() const { return next.first >= 0; }

  // Looks at the next tile, and copies the one after it: once before the first step, when the next
  // tile is that of the first step, and once in each step. look(first): seen_keys() of a tile.
  template <typename Look, typename Load>
  __device__ void load_after(const Look& look, const Load& load) {
    after = -1;
    if (more()) {
      next = look(next.first);
      after = load((stage + 2) % kStages, next.first + kTensorTile);
    }
    end_copies();
  }

  // Waits for the next tile.
  __device__ void advance() {
    wait_for_batches<1>();
    publish_to_products();
    __syncthreads();  // the tile is there, and that of the step before the last has been read
    stage = (stage + 1) % kStages;
    now = next;
    next.first = after;
  }
};

// products [64, 64] = rows of `left` times rows of `right`, over all channels.
template <typename T, int kSteps>
__device__ void multiply_group_tiles(float (&products)[8][4], TileOperand left, TileOperand right) {
  left = same_in_warp(left);
  right = same_in_warp(right);
  constexpr int kBlockBytes = kTileBlock * static_cast<int>(sizeof(T));
  constexpr int kStepBytes = 16 * static_cast<int>(sizeof(T));
  for_each_block<kSteps>([&](int step) {
    const int bytes = step / 4 * kBlockBytes + step % 4 * kStepBytes;
    multiply_by_rows_of_tile<T>(products, left.moved(bytes), right.moved(bytes), step > 0);
  });
}

// 64 x 64 weights of a warpgroup, rounded: the left side of a product.
struct GroupWeights {
  std::uint32_t step[4][4];
};

template <typename T>
__device__ void round_step(GroupWeights& rounded, int step, const float (&weights)[8][4]) {
  const auto& before = weights[2 * step];
  const auto& behind = weights[2 * step + 1];
  rounded.step[step][0] = rounded_pair<T>(before[0], before[1]);
  rounded.step[step][1] = rounded_pair<T>(before[2], before[3]);
  rounded.step[step][2] = rounded_pair<T>(behind[0], behind[1]);
  rounded.step[step][3] = rounded_pair<T>(behind[2], behind[3]);
}

template <typename T>
__device__ void round_weights(GroupWeights& rounded, const float (&weights)[8][4]) {
  for_each_block<4>([&](int step) { round_step<T>(rounded, step, weights); });
}

// Sums of 64 rows and all channels: block b has channels 64 b .. 64 b + 63.
template <int kSteps>
struct GroupSums {
  float block[kSteps / 4][8][4];
};

// sums += weights times the rows of a tile.
template <typename T, int kSteps>
__device__ void add_weighted_tile(GroupSums<kSteps>& sums, const GroupWeights& weights,
                                  TileOperand rows) {
  rows = same_in_warp(rows);
  constexpr int kBlockBytes = kTileBlock * static_cast<int>(sizeof(T));
  constexpr int kStepBytes = 16 * kTileNumbers * static_cast<int>(sizeof(T));
  for_each_block<4>([&](int step) {
    for_each_block<kSteps / 4>([&](int block) {
      add_product_with_tile<T>(sums.block[block], weights.step[step],
                               rows.moved(block * kBlockBytes + step * kStepBytes));
    });
  });
}

template <int kSteps>
__device__ void receive(GroupSums<kSteps>& sums) {
  for_each_block<kSteps / 4>([&](int block) { receive(sums.block[block]); });
}

// As the sums that write_sums() takes.
template <int kSteps>
__device__ auto in_one_row(GroupSums<kSteps>& sums) -> float (&)[2 * kSteps][4] {
  return reinterpret_cast<float(&)[2 * kSteps][4]>(sums.block);
}

}  // namespace piton::cuda
