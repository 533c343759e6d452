// Which pairs of a tile of queries and a tile of keys dropout keeps, as bits in shared memory: four
// neighboring keys share a draw, which lanes that have single pairs would repeat. Internal to this
// folder.
#pragma once

#include "kernels/cuda/attention/tensor_tiles.cuh"

namespace piton::cuda {

inline constexpr int kWordBits = 32;
inline constexpr int kWordsOfRow = kTensorTile / kWordBits;  // a row is a query
inline constexpr int kKeptWords = kTensorTile * kWordsOfRow;
static_assert(kKeptWords == kTensorThreads);

struct PairTile {
  std::int64_t sample;
  std::int64_t head;
  std::int64_t key_position;  // of the first key: a multiple of 4, and those behind it follow
};

// Bit c % 32 of words[2 r + c / 32] becomes 1 if the pair of query r and key c is kept. All threads
// of the block call it. `position_of(r)`: of a query.
template <typename PositionOf>
__device__ void draw_kept(std::uint32_t* words, const ScoreRules& rules, const PairTile& tile,
                          const PositionOf& position_of) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t position = position_of(thread / kWordsOfRow);
  const std::int64_t first = tile.key_position + thread % kWordsOfRow * kWordBits;
  std::uint32_t bits = 0;
#pragma unroll 2
  for (int c = 0; c < kWordBits; c += 4) {
    const MaskWords drawn =
        rules.site.words(tile.sample, rules.head_begin + tile.head, position, first + c);
    for (int i = 0; i < 4; ++i)
      bits |= static_cast<std::uint32_t>(rules.site.keeps(drawn.word[i])) << (c + i);
  }
  words[thread] = bits;
}

}  // namespace piton::cuda
