// The gradients of keys and values by warpgroups: as key_gradient_tensor.cu. While one warpgroup
// computes P and dS, the products of the other one run.
#include "kernels/cuda/attention/key_pairs.cuh"
#include "kernels/cuda/attention/warpgroup/warpgroup_attention.h"
#include "kernels/cuda/attention/warpgroup/warpgroup_tiles.cuh"

namespace piton::cuda {
namespace {

template <int kSteps>
struct KeyGroups {
  static constexpr int kGroups = 2;
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kKeys = kGroups * kGroupRows;
  static constexpr int kStages = 3;  // of this step, and of the next two
  static constexpr std::size_t kTermBytes = kTensorTile * sizeof(QueryTerms);
  static constexpr std::size_t kBytes =
      sizeof(std::uint16_t) *
          static_cast<std::size_t>((2 * kGroups + 2 * kStages) * kGroupTile<kSteps>) +
      kStages * kTermBytes;
};

template <typename T, int kSteps>
struct KeyGroupTiles {
  using Shape = KeyGroups<kSteps>;
  static constexpr int kTile = kGroupTile<kSteps>;
  __device__ static T* keys(int group) { return shared_array<T>() + 2 * group * kTile; }
  __device__ static T* values(int group) { return keys(group) + kTile; }
  __device__ static T* queries(int stage) {
    return shared_array<T>() + 2 * (Shape::kGroups + stage) * kTile;
  }
  __device__ static T* gradients(int stage) { return queries(stage) + kTile; }
  __device__ static QueryTerms* terms(int stage) {
    return reinterpret_cast<QueryTerms*>(queries(Shape::kStages)) + stage * kTensorTile;
  }
};

// A tile of queries, as a warpgroup of keys is seen by it.
struct SeenQueries {
  bool seen;             // some of them may see one of the keys
  std::uint32_t hidden;  // which pairs of a lane are not (hide_block)
};

template <typename T, int kSteps>
struct KeyGroupBlock : OwnedKeys<T, KeyGroups<kSteps>::kKeys> {
  using Shape = KeyGroups<kSteps>;
  using Tiles = KeyGroupTiles<T, kSteps>;
  using Base = OwnedKeys<T, Shape::kKeys>;
  using Base::begin;
  using Base::grid;
  using Base::key_head;
  using Base::keys;
  using Base::sample;

  __device__ explicit KeyGroupBlock(const TensorGrid<T>& of) : Base(of) {}

  // Copies the queries of a step, and what else belongs to them.
  __device__ void load(int stage, const QueryStep& step) const {
    const BackwardGrid<T>& pairs = grid.pairs;
    const std::int64_t rest = pairs.sight.queries - step.first;
    const int rows = static_cast<int>(rest < kTensorTile ? rest : kTensorTile);
    load_group_tile<T, kSteps, Shape::kThreads>(
        Tiles::queries(stage), {pairs.q.row(sample, step.first, step.head), pairs.q.row_stride,
                                rows, pairs.d, pairs.q.data});
    load_group_tile<T, kSteps, Shape::kThreads>(
        Tiles::gradients(stage), {pairs.dout.row(sample, step.first, step.head),
                                  pairs.dout.row_stride, rows, pairs.d, pairs.dout.data});
    const int two = static_cast<int>(threadIdx.x) * 2;
    if (two < kTensorTile) {
      start_copy(Tiles::terms(stage) + two, grid.terms_of(sample, step.head) + step.first + two,
                 static_cast<int>(sizeof(TwoQueryTerms)));
    }
  }

  // Makes `step` the one after it, and copies its queries. False: there is none.
  __device__ bool load_after(int stage, QueryStep& step) const {
    step.first += kTensorTile;
    const bool found = Base::find(step);
    if (found) load(stage, step);
    end_copies();
    return found;
  }

  __device__ SeenQueries seen_queries(const QueryStep& step, int group, int own) const {
    const KeySight& sight = grid.pairs.sight;
    const int left = keys - group * kGroupRows;  // keys of the group; at most 0: none
    if (left <= 0) return {false, 0};
    const std::int64_t rest = sight.queries - step.first;
    const Positions range = range_of_tile(
        sight, sample, step.first, static_cast<int>(rest < kTensorTile ? rest : kTensorTile));
    const int from = begin + group * kGroupRows;
    const int to = from + (left < kGroupRows ? left : kGroupRows) - 1;
    const std::int64_t low = sight.key_position(sample, from);
    const std::int64_t high = sight.key_position(sample, to);
    if (!sight.meets(range, low, high)) return {false, 0};
    if (left >= kGroupRows && sight.covers(range, low, high)) return {true, 0};
    return {true, hidden_from_queries<8>(sight, Base::own_keys(own), step.first)};
  }

  __device__ void load_own() const {
    const BackwardGrid<T>& pairs = grid.pairs;
    for (int group = 0; group < Shape::kGroups; ++group) {
      const int skipped = group * kGroupRows;
      load_group_tile<T, kSteps, Shape::kThreads>(
          Tiles::keys(group), {pairs.k.row(sample, begin + skipped, key_head), pairs.k.row_stride,
                               keys - skipped, pairs.d, pairs.k.data});
      load_group_tile<T, kSteps, Shape::kThreads>(
          Tiles::values(group), {pairs.v.row(sample, begin + skipped, key_head), pairs.v.row_stride,
                                 keys - skipped, pairs.d, pairs.v.data});
    }
  }
};

template <typename T, int kSteps>
__global__ void __launch_bounds__(KeyGroups<kSteps>::kThreads, 1)
    key_gradient_by_groups(TensorGrid<T> grid) {
  using Shape = KeyGroups<kSteps>;
  using Tiles = KeyGroupTiles<T, kSteps>;
  constexpr bool kEarly = kSteps <= 4;  // wide heads leave no registers for a copy so early
  const KeyGroupBlock<T, kSteps> block(grid);
  const BackwardGrid<T>& pairs = grid.pairs;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int own = static_cast<int>(threadIdx.x / kWarp) * 16;  // key of the warp, in the tile
  GroupSums<kSteps> dk{};
  GroupSums<kSteps> dv{};
  // Of the next step, and of the one after it.
  QueryStep step{block.key_head * static_cast<int>(pairs.heads_per_key), 0, false};
  bool more = block.keys > 0 && block.find(step);
  if (more) {
    block.load_own();
    block.load(0, step);
    end_copies();
    const TileOperand k = tile_operand(Tiles::keys(group));
    const TileOperand v = tile_operand(Tiles::values(group));
    SeenQueries next = block.seen_queries(step, group, own);
    bool more_after = block.load_after(1, step);
    for (int stage = 0; more; stage = (stage + 1) % Shape::kStages) {
      wait_for_batches<1>();
      publish_to_products();
      __syncthreads();  // the tile is there, and that of the step before has been read
      const SeenQueries now = next;
      const int two_ahead = (stage + 2) % Shape::kStages;
      more = more_after;
      const QueryStep following = step;
      if (!now.seen) {  // the whole group
        if (more) next = block.seen_queries(following, group, own);
        more_after = more && block.load_after(two_ahead, step);
        continue;
      }
      Pairs<8> products;
      begin_products();
      multiply_group_tiles<T, kSteps>(products.p, k, tile_operand(Tiles::queries(stage)));
      multiply_group_tiles<T, kSteps>(products.ds, v, tile_operand(Tiles::gradients(stage)));
      end_products();
      if (kEarly) more_after = more && block.load_after(two_ahead, step);
      wait_for_products<0>();
      receive(products.p);
      receive(products.ds);
      GroupWeights p;
      GroupWeights ds;
      for_each_block<4>([&](int part) {
        for (int j = 2 * part; j < 2 * part + 2; ++j) {
          take_queries<T, 8, false>(products, j, pairs, {Tiles::terms(stage), nullptr, 0});
          hide_block(products, j, now.hidden);
        }
        round_step<T>(p, part, products.p);
        round_step<T>(ds, part, products.ds);
        asm volatile("" ::: "memory");  // the terms of all parts at once would take many registers
      });
      begin_products();
      add_weighted_tile<T, kSteps>(dv, p, tile_operand(Tiles::gradients(stage)));
      add_weighted_tile<T, kSteps>(dk, ds, tile_operand(Tiles::queries(stage)));
      end_products();
      if (!kEarly) more_after = more && block.load_after(two_ahead, step);
      if (more)
        next = block.seen_queries(following, group, own);  // there are registers for it here
      wait_for_products<0>();
      receive(dv);
      receive(dk);
    }
  }
  block.template write<kSteps>(in_one_row(dk), pairs.dk, own, pairs.rules.scale);
  block.template write<kSteps>(in_one_row(dv), pairs.dv, own, 1);
}

}  // namespace

template <typename T, int kChannels>
void launch_key_gradient_of_groups(const AttentionBackward& call, const TensorGrid<T>& grid,
                                   cudaStream_t stream) {
  if (call.k.elements() == 0) return;
  using Shape = KeyGroups<kChannels / 2>;
  launch("launch of attention backward, keys", key_gradient_by_groups<T, kChannels / 2>,
         {.blocks = {static_cast<unsigned>((call.k.dim(1) + Shape::kKeys - 1) / Shape::kKeys),
                     static_cast<unsigned>(call.k.dim(2)), static_cast<unsigned>(call.q.dim(0))},
          .threads = Shape::kThreads,
          .shared_bytes = Shape::kBytes},
         grid, stream);
}

template void launch_key_gradient_of_groups<__nv_bfloat16, 8>(const AttentionBackward&,
                                                              const TensorGrid<__nv_bfloat16>&,
                                                              cudaStream_t);
template void launch_key_gradient_of_groups<__nv_bfloat16, 16>(const AttentionBackward&,
                                                               const TensorGrid<__nv_bfloat16>&,
                                                               cudaStream_t);
template void launch_key_gradient_of_groups<__half, 8>(const AttentionBackward&,
                                                       const TensorGrid<__half>&, cudaStream_t);
template void launch_key_gradient_of_groups<__half, 16>(const AttentionBackward&,
                                                        const TensorGrid<__half>&, cudaStream_t);

}  // namespace piton::cuda
