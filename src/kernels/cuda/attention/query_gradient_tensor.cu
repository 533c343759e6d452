// The gradient of queries on tensor cores.
#include "kernels/cuda/attention/query_pairs.cuh"

namespace piton::cuda {
namespace {

// As take_queries_by_rules(), of own queries and keys first + 8 j .., of `count`.
template <typename T, int kCount>
__device__ void take_keys_by_rules(Pairs<kCount>& pairs, const BackwardGrid<T>& grid,
                                   const OwnQueries& queries, std::int64_t first, int count) {
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll 1
  for (int i = 0; i < 4 * kCount; ++i) {
    const int e = i % 4;
    const int at = 8 * (i / 4) + column + e % 2;
    PairGradient pair;
    if (at < count && queries.used[e / 2]) {
      pair = pair_gradient(grid, queries.sample, queries.head,
                           facts_of(grid, queries.sample, queries.head, queries.index[e / 2],
                                    queries.terms[e / 2].dout_out),
                           first + at, pairs.p[i / 4][e], pairs.ds[i / 4][e]);
    }
    pairs.ds[i / 4][e] = pair.ds;
  }
}

// What a block owns, and its tiles in shared memory.
template <typename T, int kSteps, PairForm kForm>
struct QueryBlock : OwnedQueries<T, kTensorTile> {
  using Base = OwnedQueries<T, kTensorTile>;
  using Base::first;
  using Base::grid;
  using Base::head;
  using Base::key_head;
  using Base::keys;
  using Base::rows;
  using Base::sample;
  Stages<T, kSteps> stages;

  __device__ explicit QueryBlock(const TensorGrid<T>& of) : Base(of) {}

  // Copies a tile of keys and values, and draws the kept pairs.
  __device__ void load(int stage, std::int64_t begin) const {
    const BackwardGrid<T>& pairs = grid.pairs;
    const int count = static_cast<int>(keys - begin < kTensorTile ? keys - begin : kTensorTile);
    load_rows<T, kSteps>(stages.first(stage), count, pairs.d, grid.vectors,
                         [&](int i) { return pairs.k.row(sample, begin + i, key_head); });
    load_rows<T, kSteps>(stages.second(stage), count, pairs.d, grid.vectors,
                         [&](int i) { return pairs.v.row(sample, begin + i, key_head); });
    if constexpr (kForm == PairForm::kDropped) {
      const KeySight& sight = pairs.sight;
      draw_kept(stages.kept(stage), pairs.rules, {sample, head, sight.key_position(sample, begin)},
                [&](int i) { return sight.place_of(sample, first + (i < rows ? i : 0)).first; });
    }
  }

  __device__ void load_own() const {
    const BackwardGrid<T>& pairs = grid.pairs;
    load_rows<T, kSteps>(stages.first(1), rows, pairs.d, grid.vectors,
                         [&](int i) { return pairs.q.row(sample, first + i, head); });
    load_rows<T, kSteps>(stages.own(), rows, pairs.d, grid.vectors,
                         [&](int i) { return pairs.dout.row(sample, first + i, head); });
  }

  // `part`: of the tile in a stage, the first key.
  __device__ KeysOfPart keys_of(int stage, int part, std::int64_t from, int count, int own) const {
    KeysOfPart all{from, count, {}};
    if constexpr (kForm == PairForm::kDropped) {
      for (int i = 0; i < 2; ++i) {
        const int row = own + static_cast<int>(threadIdx.x % kWarp / 4) + 8 * i;
        all.kept[i] = stages.kept(stage)[row * kWordsOfRow + part / kWordBits] >> part % kWordBits;
      }
    }
    return all;
  }
};

// A block: a tile of queries, a head, a sample.
template <typename T, int kChannels, PairForm kForm>
__global__ void __launch_bounds__(kTensorThreads, kBlocks) query_gradient(TensorGrid<T> grid) {
  constexpr int kSteps = kChannels / 2;
  constexpr int kPitch = kTensorPitch<kSteps>;
  const QueryBlock<T, kSteps, kForm> block(grid);
  const Stages<T, kSteps>& stages = block.stages;
  const BackwardGrid<T>& pairs = grid.pairs;
  const KeySight& sight = pairs.sight;
  const int own = static_cast<int>(threadIdx.x / kWarp) * 16;  // query of the warp, in the tile
  const int own_rows = block.rows - own < 16 ? block.rows - own : 16;  // at most 0: none
  float dq[2 * kSteps][4] = {};
  std::int64_t begin = 0;
  bool more = block.find(begin);
  if (more) {
    block.load_own();
    block.load(0, begin);
    wait_for_copies();
    __syncthreads();
    std::uint32_t q[kSteps][4];
    read_left<T, kSteps>(q, stages.first(1) + own * kPitch);
    const T* dout = stages.own() + own * kPitch;
    const OwnQueries mine = block.own_queries(own);
    const Positions range = own_rows > 0
                                ? query_range(sight, block.sample, block.first + own, own_rows)
                                : block.whole.wide();
    for (int stage = 0; more; stage ^= 1) {
      wait_for_copies();
      __syncthreads();  // the tile is there, and the other stage has been read
      const std::int64_t now = begin;
      begin += kTensorTile;
      more = block.find(begin);
      if (more) block.load(stage ^ 1, begin);
      if (own_rows <= 0) continue;
      for (int part = 0; part < kTensorTile; part += kPart<kSteps>) {
        const std::int64_t from = now + part;
        const std::int64_t rest = block.keys - from;
        if (rest <= 0) break;
        const int count = static_cast<int>(rest < kPart<kSteps> ? rest : kPart<kSteps>);
        const std::int64_t low = sight.key_position(block.sample, from);
        const std::int64_t high = sight.key_position(block.sample, from + count - 1);
        if (!sight.meets(range, low, high)) continue;
        const T* k = stages.first(stage) + part * kPitch;
        const T* v = stages.second(stage) + part * kPitch;
        Pairs<kPart<kSteps> / 8> products;
        multiply_by_rows<T, kSteps>(products.p, q, k);
        multiply_rows_by_rows<T, kSteps>(products.ds, dout, v);
        if constexpr (kForm != PairForm::kRuled) {
          const KeysOfPart keys = block.keys_of(stage, part, from, count, own);
          take_keys<T, kPart<kSteps> / 8, kForm == PairForm::kDropped>(products, pairs, mine, keys);
          if (count < kPart<kSteps> || !sight.covers(range, low, high))
            hide_keys(products, sight, mine, keys);
        } else {
          take_keys_by_rules(products, pairs, mine, from, count);
        }
        add_weighted<T, kSteps>(dq, products.ds, k);
      }
    }
  }
  block.template write<kSteps>(dq, own);
}

}  // namespace

template <typename T, int kChannels>
void launch_query_gradient(const AttentionBackward& call, const TensorGrid<T>& grid,
                           cudaStream_t stream) {
  if (call.q.elements() == 0) return;
  with_form(grid.form, [&]<PairForm kForm>(std::integral_constant<PairForm, kForm>) {
    launch("launch of attention backward, queries", query_gradient<T, kChannels, kForm>,
           {.blocks = {tiles_of(call.q.dim(1)), static_cast<unsigned>(call.q.dim(2)),
                       static_cast<unsigned>(call.q.dim(0))},
            .threads = kTensorThreads,
            .shared_bytes = Stages<T, kChannels / 2>::kBytesWithOwn},
           grid, stream);
  });
}

template void launch_query_gradient<__nv_bfloat16, 8>(const AttentionBackward&,
                                                      const TensorGrid<__nv_bfloat16>&,
                                                      cudaStream_t);
template void launch_query_gradient<__nv_bfloat16, 16>(const AttentionBackward&,
                                                       const TensorGrid<__nv_bfloat16>&,
                                                       cudaStream_t);
template void launch_query_gradient<__half, 8>(const AttentionBackward&, const TensorGrid<__half>&,
                                               cudaStream_t);
template void launch_query_gradient<__half, 16>(const AttentionBackward&, const TensorGrid<__half>&,
                                                cudaStream_t);

}  // namespace piton::cuda
