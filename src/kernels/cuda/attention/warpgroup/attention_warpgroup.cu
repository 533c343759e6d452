// Attention forward by warpgroups: a block has a tile of queries for each of its warpgroups, which
// share tiles of keys and values. The products of a tile of keys with its values run while the
// softmax of the next tile is computed.
#include "kernels/cuda/attention/attention_tensor.cuh"
#include "kernels/cuda/attention/warpgroup/warpgroup_attention.h"
#include "kernels/cuda/attention/warpgroup/warpgroup_tiles.cuh"

namespace piton::cuda {
namespace {

// More warpgroups read keys less often; wide heads leave no registers for a third one.
template <int kSteps>
struct ForwardGroups {
  static constexpr int kGroups = kSteps <= 4 ? 3 : 2;
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kQueries = kGroups * kGroupRows;
  static constexpr std::size_t kBytes =
      sizeof(std::uint16_t) *
      static_cast<std::size_t>((kGroups + 2 * KeyWalk::kStages) * kGroupTile<kSteps>);
};

// The tiles of a block in shared memory.
template <typename T, int kSteps>
struct ForwardTiles {
  static constexpr int kTile = kGroupTile<kSteps>;
  __device__ static T* queries(int group) { return shared_array<T>() + group * kTile; }
  __device__ static T* keys(int stage) {
    return shared_array<T>() + (ForwardGroups<kSteps>::kGroups + 2 * stage) * kTile;
  }
  __device__ static T* values(int stage) { return keys(stage) + kTile; }
};

// The steps of a block: tiles of keys that some of its queries may see.
template <typename T, int kSteps>
struct ForwardWalk : KeyWalk {
  using Shape = ForwardGroups<kSteps>;
  using Tiles = ForwardTiles<T, kSteps>;
  const ForwardGrid<T>& grid;
  const QueryTile<T>& tile;
  int key_head;
  int keys;
  ShortPositions whole;  // of the block's queries
  ShortPositions range;  // of the group's

  __device__ ForwardWalk(const ForwardGrid<T>& of, const QueryTile<T>& queries, int group)
      : grid(of),
        tile(queries),
        key_head(static_cast<int>(queries.head / of.heads_per_key)),
        keys(static_cast<int>(of.sight.key_count(queries.sample))),
        whole(range_of_tile(of.sight, queries.sample, queries.first, queries.count)),
        range(whole) {
    const int left = tile.count - group * kGroupRows;
    if (left > 0) {
      range = ShortPositions(range_of_tile(grid.sight, tile.sample, tile.first + group * kGroupRows,
                                           left < kGroupRows ? left : kGroupRows));
    }
    for (int i = 0; i < Shape::kGroups; ++i) {
      const int skipped = i * kGroupRows;
      load_group_tile<T, kSteps, Shape::kThreads>(
          Tiles::queries(i), {tile.q + skipped * tile.q_stride, tile.q_stride, tile.count - skipped,
                              tile.d, grid.q.data});
    }
    next.first = load(0, 0);
    end_copies();
    load_after();
  }

  // Whether the group has queries.
  __device__ bool used() const {
    return static_cast<int>(threadIdx.x) / kGroupThreads * kGroupRows < tile.count;
  }

  // Finds the first tile from key `begin` on that some query of the block may see, and starts to
  // copy it. Its first key; -1: there is none.
  __device__ int load(int to, int begin) const {
    if (!find_keys(grid.sight, tile.sample, whole.wide(), keys, begin)) return -1;
    const int count = keys - begin < kTensorTile ? keys - begin : kTensorTile;
    load_group_tile<T, kSteps, Shape::kThreads>(
        Tiles::keys(to),
        {grid.k.row(tile.sample, begin, key_head), grid.k.row_stride, count, tile.d, grid.k.data});
    load_group_tile<T, kSteps, Shape::kThreads>(
        Tiles::values(to),
        {grid.v.row(tile.sample, begin, key_head), grid.v.row_stride, count, tile.d, grid.v.data});
    return begin;
  }

  __device__ void load_after() {
    KeyWalk::load_after(
        [&](int first) { return seen_keys(grid.sight, tile.sample, first, keys, range, used()); },
        [&](int to, int begin) { return load(to, begin); });
  }

  // Whether each query of the group sees each key of this step's tile.
  __device__ bool covered() const {
    return seen_keys(grid.sight, tile.sample, now.first, keys, range, true).covered;
  }

  // Keys of the tile of this step.
  __device__ int count() const {
    return keys - now.first < kTensorTile ? keys - now.first : kTensorTile;
  }
};

// What a warpgroup has summed: of all tiles but the last one that it took.
template <typename T, int kSteps>
struct GroupState {
  GroupSums<kSteps> sums;
  LaneSoftmax softmax;
  GroupWeights weights;  // of the last tile

  // Starts the product with its values.
  __device__ void add(const T* values) {
    begin_products();
    add_weighted_tile<T, kSteps>(sums, weights, tile_operand(values));
    end_products();
  }

  __device__ void scale(const float (&corrections)[2]) {
    if (__ballot_sync(kAllLanes, corrections[0] != 1 || corrections[1] != 1) == 0) return;
    for (auto& channels : sums.block) {
      for (auto& block : channels) {
        for (int e = 0; e < 4; ++e) block[e] *= corrections[e / 2];
      }
    }
  }
};

template <typename T, int kSteps>
__global__ void __launch_bounds__(ForwardGroups<kSteps>::kThreads, 1)
    attention_by_groups(ForwardGrid<T> grid) {
  using Shape = ForwardGroups<kSteps>;
  using Tiles = ForwardTiles<T, kSteps>;
  const QueryTile<T> tile = query_tile(grid, Shape::kQueries);
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int own = static_cast<int>(threadIdx.x / kWarp) * 16;  // query of the warp, in the tile
  ForwardWalk<T, kSteps> walk(grid, tile, group);
  const LaneQueries queries = lane_queries(tile, grid.sight, grid.rules, own,
                                           tile.count - own < 16 ? tile.count - own : 16);
  GroupState<T, kSteps> state{.sums = {}, .softmax = {.unit = grid.rules.scale * kLogE2}};
  const TileOperand q = tile_operand(Tiles::queries(group));
  WarpScores scores;
  float corrections[2];
  bool any = false;
  int last = 0;  // stage of the last tile that was taken
  while (walk.more() && !any) {
    walk.advance();
    any = walk.now.seen;
    if (any) {
      begin_products();
      multiply_group_tiles<T, kSteps>(scores.block, q, tile_operand(Tiles::keys(walk.stage)));
      end_products();
      walk.load_after();
      wait_for_products<0>();
      receive(scores.block);
      if (!walk.covered()) queries.mask(scores, walk.now.first, walk.count());
      state.softmax.take(scores, corrections);
      round_weights<T>(state.weights, scores.block);
      last = walk.stage;
    } else {
      walk.load_after();
    }
  }
  while (walk.more()) {
    walk.advance();
    if (!walk.now.seen) {
      walk.load_after();
      continue;
    }
    // Before the products, which leave no registers for it.
    const bool neighbors = grid.sight.has_neighbors();
    std::uint32_t hidden = 0;
    if (!neighbors && !walk.covered()) hidden = queries.hidden(walk.now.first, walk.count());
    begin_products();
    multiply_group_tiles<T, kSteps>(scores.block, q, tile_operand(Tiles::keys(walk.stage)));
    end_products();
    state.add(Tiles::values(last));
    walk.load_after();
    wait_for_products<1>();
    receive(scores.block);
    if (!walk.covered()) {
      if (neighbors) {
        queries.mask_columns(scores, walk.now.first, walk.count());
      } else {
        LaneQueries::hide(scores, hidden);
      }
    }
    state.softmax.take(scores, corrections);
    wait_for_products<0>();
    receive(state.sums);
    state.scale(corrections);
    round_weights<T>(state.weights, scores.block);
    last = walk.stage;
  }
  if (any) {
    state.add(Tiles::values(last));
    wait_for_products<0>();
    receive(state.sums);
  }
  if (walk.used()) {
    write_rows<T, kSteps>(in_one_row(state.sums), state.softmax, tile, own, grid.rules.scale);
  }
}

}  // namespace

template <typename T, int kChannels>
void launch_forward_of_groups(const AttentionForward& call, const ForwardGrid<T>& grid,
                              cudaStream_t stream) {
  using Shape = ForwardGroups<kChannels / 2>;
  launch("launch of attention forward", attention_by_groups<T, kChannels / 2>,
         {.blocks = {static_cast<unsigned>((call.q.dim(1) + Shape::kQueries - 1) / Shape::kQueries),
                     static_cast<unsigned>(call.q.dim(2)), static_cast<unsigned>(call.q.dim(0))},
          .threads = Shape::kThreads,
          .shared_bytes = Shape::kBytes},
         grid, stream);
}

template void launch_forward_of_groups<__nv_bfloat16, 8>(const AttentionForward&,
                                                         const ForwardGrid<__nv_bfloat16>&,
                                                         cudaStream_t);
template void launch_forward_of_groups<__nv_bfloat16, 16>(const AttentionForward&,
                                                          const ForwardGrid<__nv_bfloat16>&,
                                                          cudaStream_t);
template void launch_forward_of_groups<__half, 8>(const AttentionForward&,
                                                  const ForwardGrid<__half>&, cudaStream_t);
template void launch_forward_of_groups<__half, 16>(const AttentionForward&,
                                                   const ForwardGrid<__half>&, cudaStream_t);

}  // namespace piton::cuda
