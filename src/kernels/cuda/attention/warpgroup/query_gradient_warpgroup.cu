// The gradient of queries by warpgroups: as query_gradient_tensor.cu. The product of dS and a tile
// of keys runs while the scores of the next tile become dS.
#include "kernels/cuda/attention/query_pairs.cuh"
#include "kernels/cuda/attention/warpgroup/warpgroup_attention.h"
#include "kernels/cuda/attention/warpgroup/warpgroup_tiles.cuh"

namespace piton::cuda {
namespace {

template <int kSteps>
struct QueryGroups {
  static constexpr int kGroups = 2;
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kQueries = kGroups * kGroupRows;
  static constexpr std::size_t kBytes =
      sizeof(std::uint16_t) *
      static_cast<std::size_t>((2 * kGroups + 2 * KeyWalk::kStages) * kGroupTile<kSteps>);
};

template <typename T, int kSteps>
struct QueryGroupTiles {
  static constexpr int kTile = kGroupTile<kSteps>;
  __device__ static T* queries(int group) { return shared_array<T>() + 2 * group * kTile; }
  __device__ static T* gradients(int group) { return queries(group) + kTile; }
  __device__ static T* keys(int stage) {
    return shared_array<T>() + 2 * (QueryGroups<kSteps>::kGroups + stage) * kTile;
  }
  __device__ static T* values(int stage) { return keys(stage) + kTile; }
};

template <typename T, int kSteps>
struct QueryGroupBlock : OwnedQueries<T, QueryGroups<kSteps>::kQueries> {
  using Shape = QueryGroups<kSteps>;
  using Tiles = QueryGroupTiles<T, kSteps>;
  using Base = OwnedQueries<T, Shape::kQueries>;
  using Base::first;
  using Base::grid;
  using Base::rows;
  using Base::sample;

  __device__ explicit QueryGroupBlock(const TensorGrid<T>& of) : Base(of) {}

  // Copies a tile of keys and values.
  __device__ void load(int stage, std::int64_t begin) const {
    const BackwardGrid<T>& pairs = grid.pairs;
    const std::int64_t left = Base::keys - begin;
    const int count = static_cast<int>(left < kTensorTile ? left : kTensorTile);
    load_group_tile<T, kSteps, Shape::kThreads>(
        Tiles::keys(stage), {pairs.k.row(sample, begin, Base::key_head), pairs.k.row_stride, count,
                             pairs.d, pairs.k.data});
    load_group_tile<T, kSteps, Shape::kThreads>(
        Tiles::values(stage), {pairs.v.row(sample, begin, Base::key_head), pairs.v.row_stride,
                               count, pairs.d, pairs.v.data});
  }

  __device__ void load_own() const {
    const BackwardGrid<T>& pairs = grid.pairs;
    for (int group = 0; group < Shape::kGroups; ++group) {
      const int skipped = group * kGroupRows;
      load_group_tile<T, kSteps, Shape::kThreads>(
          Tiles::queries(group), {pairs.q.row(sample, first + skipped, Base::head),
                                  pairs.q.row_stride, rows - skipped, pairs.d, pairs.q.data});
      load_group_tile<T, kSteps, Shape::kThreads>(
          Tiles::gradients(group),
          {pairs.dout.row(sample, first + skipped, Base::head), pairs.dout.row_stride,
           rows - skipped, pairs.d, pairs.dout.data});
    }
  }
};

// A warpgroup and its part of a block: 64 queries, and what it has summed, of all tiles of keys but
// the last one that it took.
template <typename T, int kSteps>
struct QueryGroup : KeyWalk {
  using Block = QueryGroupBlock<T, kSteps>;
  using Tiles = QueryGroupTiles<T, kSteps>;
  const Block& block;
  int group;
  int left;  // queries of the group; at most 0: none
  OwnQueries mine;
  ShortPositions range;
  GroupSums<kSteps> dq{};
  Pairs<8> products;
  GroupWeights ds;  // of the last tile

  __device__ QueryGroup(const Block& of, int number)
      : block(of),
        group(number),
        left(of.rows - number * kGroupRows),
        mine(of.own_queries(static_cast<int>(threadIdx.x / kWarp) * 16)),
        range(left > 0
                  ? range_of_tile(of.grid.pairs.sight, of.sample, of.first + number * kGroupRows,
                                  left < kGroupRows ? left : kGroupRows)
                  : of.whole.wide()) {}

  // Finds the first tile from key `begin` on that some query of the block may see, and starts to
  // copy it. Its first key; -1: there is none.
  __device__ int load(int to, std::int64_t begin) const {
    if (!block.find(begin)) return -1;
    block.load(to, begin);
    return static_cast<int>(begin);
  }

  // Copies what the first step needs.
  __device__ void load_first() {
    next.first = load(0, 0);
    if (more()) block.load_own();
    end_copies();
    load_after();
  }

  __device__ void load_after() {
    KeyWalk::load_after(
        [&](int first) {
          return seen_keys(block.grid.pairs.sight, block.sample, first, block.keys, range,
                           left > 0);
        },
        [&](int to, int begin) { return load(to, begin); });
  }

  __device__ void multiply() {
    begin_products();
    multiply_group_tiles<T, kSteps>(products.p, tile_operand(Tiles::queries(group)),
                                    tile_operand(Tiles::keys(stage)));
    multiply_group_tiles<T, kSteps>(products.ds, tile_operand(Tiles::gradients(group)),
                                    tile_operand(Tiles::values(stage)));
    end_products();
  }

  __device__ void add(int last) {
    begin_products();
    add_weighted_tile<T, kSteps>(dq, ds, tile_operand(Tiles::keys(last)));
    end_products();
  }

  // From products to dS.
  __device__ void take() {
    receive(products.p);
    receive(products.ds);
    const std::int64_t rest = block.keys - now.first;
    const KeysOfPart keys{now.first, static_cast<int>(rest < kTensorTile ? rest : kTensorTile), {}};
    take_keys<T, 8, false>(products, block.grid.pairs, mine, keys);
    if (!now.covered) hide_keys(products, block.grid.pairs.sight, mine, keys);
  }
};

template <typename T, int kSteps>
__global__ void __launch_bounds__(QueryGroups<kSteps>::kThreads, 1)
    query_gradient_by_groups(TensorGrid<T> grid) {
  const QueryGroupBlock<T, kSteps> block(grid);
  QueryGroup<T, kSteps> own(block, static_cast<int>(threadIdx.x) / kGroupThreads);
  own.load_first();
  bool any = false;
  int last = 0;  // stage of the last tile that was taken
  while (own.more() && !any) {
    own.advance();
    any = own.now.seen;
    if (any) {
      own.multiply();
      own.load_after();
      wait_for_products<0>();
      own.take();
      round_weights<T>(own.ds, own.products.ds);
      last = own.stage;
    } else {
      own.load_after();
    }
  }
  while (own.more()) {
    own.advance();
    if (!own.now.seen) {
      own.load_after();
      continue;
    }
    own.multiply();
    own.add(last);
    own.load_after();
    wait_for_products<1>();
    own.take();
    wait_for_products<0>();
    receive(own.dq);
    round_weights<T>(own.ds, own.products.ds);
    last = own.stage;
  }
  if (any) {
    own.add(last);
    wait_for_products<0>();
    receive(own.dq);
  }
  block.template write<kSteps>(in_one_row(own.dq), static_cast<int>(threadIdx.x / kWarp) * 16);
}

}  // namespace

template <typename T, int kChannels>
void launch_query_gradient_of_groups(const AttentionBackward& call, const TensorGrid<T>& grid,
                                     cudaStream_t stream) {
  if (call.q.elements() == 0) return;
  using Shape = QueryGroups<kChannels / 2>;
  launch("launch of attention backward, queries", query_gradient_by_groups<T, kChannels / 2>,
         {.blocks = {static_cast<unsigned>((call.q.dim(1) + Shape::kQueries - 1) / Shape::kQueries),
                     static_cast<unsigned>(call.q.dim(2)), static_cast<unsigned>(call.q.dim(0))},
          .threads = Shape::kThreads,
          .shared_bytes = Shape::kBytes},
         grid, stream);
}

template void launch_query_gradient_of_groups<__nv_bfloat16, 8>(const AttentionBackward&,
                                                                const TensorGrid<__nv_bfloat16>&,
                                                                cudaStream_t);
template void launch_query_gradient_of_groups<__nv_bfloat16, 16>(const AttentionBackward&,
                                                                 const TensorGrid<__nv_bfloat16>&,
                                                                 cudaStream_t);
template void launch_query_gradient_of_groups<__half, 8>(const AttentionBackward&,
                                                         const TensorGrid<__half>&, cudaStream_t);
template void launch_query_gradient_of_groups<__half, 16>(const AttentionBackward&,
                                                          const TensorGrid<__half>&, cudaStream_t);

}  // namespace piton::cuda
