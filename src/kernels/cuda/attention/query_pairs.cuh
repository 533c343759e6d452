// Own queries and a part of the keys: what the gradient of queries on tensor cores makes of their
// products. Internal to this folder.
#pragma once

#include "kernels/cuda/attention/gradient_tensor.cuh"

namespace piton::cuda {

// The queries of a warp in query_gradient(); a lane has two of them.
struct OwnQueries {
  std::int64_t sample;
  std::int64_t head;
  std::int64_t index[2];
  Bounds bounds[2];
  QueryTerms terms[2];
  bool used[2];
};

// Keys first .. first + count - 1, and the kept pairs of own queries from the first of them on.
struct KeysOfPart {
  std::int64_t first;
  int count;
  std::uint32_t kept[2];
};

// From products of own queries and the keys of a part to dS, as if each query saw all of them.
template <typename T, int kCount, bool kDrops>
__device__ void take_keys(Pairs<kCount>& pairs, const BackwardGrid<T>& grid,
                          const OwnQueries& queries, const KeysOfPart& keys) {
  const float factor = grid.rules.scale * kLogE2;
  for_each_block<kCount>([&](int j) {
    for (int e = 0; e < 4; ++e) {
      float mask_factor = 1;
      if constexpr (kDrops) {
        const int bit = 8 * j + static_cast<int>(threadIdx.x % 4) * 2 + e % 2;
        const bool kept = (keys.kept[e / 2] >> bit & 1U) != 0;
        mask_factor = kept ? static_cast<float>(grid.rules.site.kept) : 0.0F;
      }
      take_pair(pairs, j, e, factor, queries.terms[e / 2], mask_factor);
    }
  });
}

// Hides the keys of a part that own queries do not see.
template <int kCount>
__device__ void hide_keys(Pairs<kCount>& pairs, const KeySight& sight, const OwnQueries& queries,
                          const KeysOfPart& keys) {
  if (sight.has_neighbors()) {
    const Columns seen[2] = {keys_of(queries.bounds[0], keys.first, keys.count),
                             keys_of(queries.bounds[1], keys.first, keys.count)};
    for_each_block<4 * kCount>([&](int i) {
      const int column = i / 4 * 8 + static_cast<int>(threadIdx.x % 4) * 2 + i % 2;
      if (!seen[i % 4 / 2].has(column)) pairs.p[i / 4][i % 4] = pairs.ds[i / 4][i % 4] = 0;
    });
    return;
  }
  std::uint32_t hidden = 0;  // a bit for each pair
#pragma unroll 1             // all at a time need more registers
  for (int i = 0; i < 2 * kCount; ++i) {
    const int column = i / 2 * 8 + static_cast<int>(threadIdx.x % 4) * 2 + i % 2;
    const bool used = column < keys.count;
    const std::int64_t key = keys.first + (used ? column : 0);
    const std::int64_t at = sight.key_position(queries.sample, key);
    for (int own = 0; own < 2; ++own) {
      const bool seen = used && at >= queries.bounds[own].first && at <= queries.bounds[own].last &&
                        sight.same_segment(queries.sample, queries.index[own], key);
      if (!seen) hidden |= 1U << (i / 2 * 4 + 2 * own + i % 2);
    }
  }
  hide(pairs, hidden);
}

// A tile of kRows queries, of a head and a sample, that a block owns. Under a causal mask the last
// tile sees the most keys, so it is the first to start.
template <typename T, int kRows>
struct OwnedQueries {
  const TensorGrid<T>& grid;
  std::int64_t first;
  std::int64_t head;
  std::int64_t sample;
  std::int64_t key_head;
  std::int64_t keys;
  int rows;
  ShortPositions whole;  // of its queries

  __device__ explicit OwnedQueries(const TensorGrid<T>& of)
      : grid(of),
        first(std::int64_t{gridDim.x - 1 - blockIdx.x} * kRows),
        head(blockIdx.y),
        sample(blockIdx.z),
        key_head(head / of.pairs.heads_per_key),
        keys(of.pairs.sight.key_count(sample)),
        rows(static_cast<int>(
            of.pairs.sight.queries - first < kRows ? of.pairs.sight.queries - first : kRows)),
        whole(range_of_tile(of.pairs.sight, sample, first, rows)) {}

  // Finds the first tile from `begin` on that a query may see a key of.
  __device__ bool find(std::int64_t& begin) const {
    const KeySight& sight = grid.pairs.sight;
    for (; begin < keys; begin += kTensorTile) {
      const std::int64_t end = keys < begin + kTensorTile ? keys : begin + kTensorTile;
      if (sight.meets(whole.wide(), sight.key_position(sample, begin),
                      sight.key_position(sample, end - 1))) {
        return true;
      }
    }
    return false;
  }

  // Of the warp whose first query in the tile is `own`.
  __device__ OwnQueries own_queries(int own) const {
    const KeySight& sight = grid.pairs.sight;
    OwnQueries mine{.sample = sample, .head = head};
    for (int i = 0; i < 2; ++i) {
      const int row = own + static_cast<int>(threadIdx.x % kWarp / 4) + 8 * i;
      mine.used[i] = row < rows;
      mine.index[i] = first + (row < rows ? row : 0);
      mine.bounds[i] = sight.bounds_of(sight.place_of(sample, mine.index[i]));
      mine.terms[i] = grid.terms_of(sample, head)[mine.index[i]];
    }
    return mine;
  }

  // Writes the gradient of the warp's queries.
  template <int kSteps>
  __device__ void write(const float (&dq)[2 * kSteps][4], int own) const {
    const BackwardGrid<T>& pairs = grid.pairs;
    const float scale = pairs.rules.scale;
    write_sums<T, kSteps>(dq, {.first = pairs.dq.row(sample, first + own, head),
                               .stride = pairs.dq.row_stride,
                               .count = rows - own < 16 ? rows - own : 16,
                               .d = pairs.d,
                               .factor = {scale, scale}});
  }
};

}  // namespace piton::cuda
