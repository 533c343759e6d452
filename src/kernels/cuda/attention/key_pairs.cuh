// Own keys and a part of the queries: what the gradients of keys and values on tensor cores make of
// their products. Internal to this folder.
#pragma once

#include "kernels/cuda/attention/gradient_tensor.cuh"

namespace piton::cuda {

// The keys of a warp in key_gradient(); a lane has two of them.
struct OwnKeys {
  int sample;
  int head;
  int index[2];
  int position[2];  // below all bounds, if the tile has no such key
  bool used[2];
  int count;  // of the warp; at most 0: none
  int low;    // their positions
  int high;

  // Whether some of the queries first .. first + most - 1 may see one of the keys. `all`: each is
  // known to see each key; becomes true where it turns out to be so.
  __device__ bool meets(const KeySight& sight, int first, int most, bool& all) const {
    const std::int64_t rest = sight.queries - first;
    if (rest <= 0 || count <= 0) return false;
    if (all) return true;
    const Positions range =
        range_of_tile(sight, sample, first, static_cast<int>(rest < most ? rest : most));
    if (!sight.meets(range, low, high)) return false;
    all = count == 16 && sight.covers(range, low, high);
    return true;
  }
};

// The terms of query `first`, and the words of its kept pairs that have the keys of the warp.
struct QueriesOfStep {
  const QueryTerms* terms;
  const std::uint32_t* kept;
  int first_bit;  // of the lane's first key
};

// From products of own keys and queries 8 j .. 8 j + 7 of a step to P and dS, as if each saw all.
template <typename T, int kCount, bool kDrops>
__device__ void take_queries(Pairs<kCount>& pairs, int j, const BackwardGrid<T>& grid,
                             const QueriesOfStep& step) {
  const float factor = grid.rules.scale * kLogE2;
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
  const TwoQueryTerms two = *reinterpret_cast<const TwoQueryTerms*>(step.terms + 8 * j + column);
  for (int e = 0; e < 4; ++e) {
    float mask_factor = 1;
    if constexpr (kDrops) {
      const std::uint32_t word = step.kept[(8 * j + column + e % 2) * kWordsOfRow];
      const bool kept = (word >> (step.first_bit + e / 2 * 8) & 1U) != 0;
      mask_factor = kept ? static_cast<float>(grid.rules.site.kept) : 0.0F;
    }
    take_pair(pairs, j, e, factor, two.of[e % 2], mask_factor);
  }
}

// Which pairs of own keys and queries first + 8 j .. are not seen, for hide().
template <int kCount>
__device__ std::uint32_t hidden_from_queries(const KeySight& sight, const OwnKeys& keys,
                                             int first) {
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
  std::uint32_t hidden = 0;  // a bit for each pair
  if (sight.has_neighbors()) {
    Columns seen[2];
    for (int own = 0; own < 2; ++own) {
      seen[own] = sight.queries_of(first, keys.position[own]);
      if (!keys.used[own]) seen[own].last = -1;
    }
    for_each_block<4 * kCount>([&](int i) {
      if (!seen[i % 4 / 2].has(i / 4 * 8 + column + i % 2)) hidden |= 1U << i;
    });
    return hidden;
  }
#pragma unroll 1  // all at a time need more registers
  for (int i = 0; i < 2 * kCount; ++i) {
    const int query = first + i / 2 * 8 + column + i % 2;
    const bool used = query < sight.queries;
    const int known = used ? query : first;
    const Bounds bounds = sight.bounds_of(sight.place_of(keys.sample, known));
    for (int own = 0; own < 2; ++own) {
      const bool seen = used && keys.position[own] >= bounds.first &&
                        keys.position[own] <= bounds.last &&
                        sight.same_segment(keys.sample, known, keys.index[own]);
      if (!seen) hidden |= 1U << (i / 2 * 4 + 2 * own + i % 2);
    }
  }
  return hidden;
}

// A tile of queries of one of the heads of a key head.
struct QueryStep {
  int head;
  int first;
  bool covered;  // each query sees each key of the block
};

// A tile of kRows keys, of a head of keys and a sample, that a block owns.
template <typename T, int kRows>
struct OwnedKeys {
  const TensorGrid<T>& grid;
  int begin;
  int key_head;
  int sample;
  int held;  // keys of the tile
  int keys;  // those that a query may see
  int low = 0;
  int high = 0;  // their positions

  __device__ explicit OwnedKeys(const TensorGrid<T>& of)
      : grid(of),
        begin(static_cast<int>(blockIdx.x) * kRows),
        key_head(static_cast<int>(blockIdx.y)),
        sample(static_cast<int>(blockIdx.z)) {
    const KeySight& sight = grid.pairs.sight;
    const std::int64_t left = sight.keys - begin;
    held = static_cast<int>(left < kRows ? left : kRows);
    const std::int64_t visible = sight.key_count(sample) - begin;
    keys = static_cast<int>(visible < held ? (visible > 0 ? visible : 0) : held);
    if (keys == 0) return;
    low = in_32_bits(sight.key_position(sample, begin));
    high = in_32_bits(sight.key_position(sample, begin + keys - 1));
  }

  // Finds the first step from `step` on in which a query may see a key.
  __device__ bool find(QueryStep& step) const {
    const KeySight& sight = grid.pairs.sight;
    const int last_head = static_cast<int>((key_head + 1) * grid.pairs.heads_per_key);
    for (; step.head < last_head; ++step.head, step.first = 0) {
      for (; step.first < sight.queries; step.first += kTensorTile) {
        const std::int64_t rest = sight.queries - step.first;
        const Positions range = range_of_tile(
            sight, sample, step.first, static_cast<int>(rest < kTensorTile ? rest : kTensorTile));
        if (!sight.meets(range, low, high)) continue;
        step.covered = keys == kRows && sight.covers(range, low, high);
        return true;
      }
    }
    return false;
  }

  // Of the warp whose first key in the tile is `own`.
  __device__ OwnKeys own_keys(int own) const {
    const KeySight& sight = grid.pairs.sight;
    OwnKeys mine{.sample = sample};
    for (int i = 0; i < 2; ++i) {
      const int row = own + static_cast<int>(threadIdx.x % kWarp / 4) + 8 * i;
      mine.used[i] = row < keys;
      mine.index[i] = begin + (row < keys ? row : 0);
      mine.position[i] = row < keys ? in_32_bits(sight.key_position(sample, mine.index[i]))
                                    : static_cast<int>(-kMostPosition - 1);
    }
    mine.count = keys - own < 16 ? keys - own : 16;
    const int first = begin + (mine.count > 0 ? own : 0);
    mine.low = in_32_bits(sight.key_position(sample, first));
    mine.high =
        in_32_bits(sight.key_position(sample, first + (mine.count > 0 ? mine.count : 1) - 1));
    return mine;
  }

  // Writes dk or dv of the warp's keys.
  template <int kSteps>
  __device__ void write(const float (&sums)[2 * kSteps][4], const HeadMatrix<T>& gradient, int own,
                        float scale) const {
    write_sums<T, kSteps>(sums, {.first = gradient.row(sample, begin + own, key_head),
                                 .stride = gradient.row_stride,
                                 .count = held - own,
                                 .d = grid.pairs.d,
                                 .factor = {scale, scale}});
  }
};

}  // namespace piton::cuda
