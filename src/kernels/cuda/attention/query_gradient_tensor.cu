// The gradient of queries on tensor cores.
#include "kernels/cuda/attention/gradient_tensor.cuh"

namespace piton::cuda {
namespace {

// The queries of a warp in query_gradient(); a lane has two of them.
struct OwnQueries {
  std::int64_t sample;
  std::int64_t head;
  std::int64_t index[2];
  Bounds bounds[2];
  QueryTerms terms[2];
  bool used[2];
};

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

// Keys first .. first + count - 1, and the kept pairs of own queries from the first of them on.
struct KeysOfPart {
  std::int64_t first;
  int count;
  std::uint32_t kept[2];
};

// As take_queries(), of own queries and keys first + 8 j ..
template <typename T, int kCount, bool kDrops>
__device__ void take_keys(Pairs<kCount>& pairs, const BackwardGrid<T>& grid,
                          const OwnQueries& queries, const KeysOfPart& keys, bool all) {
  const KeySight& sight = grid.sight;
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
  if (all) return;
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

// What a block owns: a tile of queries, of a head and a sample. Under a causal mask the last tile
// sees the most keys, so it is the first to start.
template <typename T, int kSteps, PairForm kForm>
struct QueryBlock {
  const TensorGrid<T>& grid;
  Stages<T, kSteps> stages;
  std::int64_t first;
  std::int64_t head;
  std::int64_t sample;
  std::int64_t key_head;
  std::int64_t keys;
  int rows;
  Positions whole;  // of its queries

  __device__ explicit QueryBlock(const TensorGrid<T>& of)
      : grid(of),
        first(std::int64_t{gridDim.x - 1 - blockIdx.x} * kTensorTile),
        head(blockIdx.y),
        sample(blockIdx.z),
        key_head(head / of.pairs.heads_per_key),
        keys(of.pairs.sight.key_count(sample)) {
    const std::int64_t left = of.pairs.sight.queries - first;
    rows = static_cast<int>(left < kTensorTile ? left : kTensorTile);
    whole = range_of_tile(of.pairs.sight, sample, first, rows);
  }

  // Finds the first tile from `begin` on that a query may see a key of.
  __device__ bool find(std::int64_t& begin) const {
    const KeySight& sight = grid.pairs.sight;
    for (; begin < keys; begin += kTensorTile) {
      const std::int64_t end = keys < begin + kTensorTile ? keys : begin + kTensorTile;
      if (sight.meets(whole, sight.key_position(sample, begin),
                      sight.key_position(sample, end - 1))) {
        return true;
      }
    }
    return false;
  }

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

  // Of the warp whose first query in the tile is `own`.
  __device__ OwnQueries own_queries(int own) const {
    const KeySight& sight = grid.pairs.sight;
    OwnQueries mine{.sample = sample, .head = head};
    for (int i = 0; i < 2; ++i) {
      const int row = own + static_cast<int>(threadIdx.x % kWarp / 4) + 8 * i;
      mine.used[i] = row < rows;
      mine.index[i] = first + (row < rows ? row : 0);
      mine.bounds[i] = sight.bounds_of(sight.place_of(sample, mine.index[i]));
      mine.terms[i] = grid.terms_of(sample, head)[first + row];
    }
    return mine;
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
    const Positions range =
        own_rows > 0 ? query_range(sight, block.sample, block.first + own, own_rows) : block.whole;
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
          take_keys<T, kPart<kSteps> / 8, kForm == PairForm::kDropped>(
              products, pairs, mine, block.keys_of(stage, part, from, count, own),
              count == kPart<kSteps> && sight.covers(range, low, high));
        } else {
          take_keys_by_rules(products, pairs, mine, from, count);
        }
        add_weighted<T, kSteps>(dq, products.ds, k);
      }
    }
  }
  const float scale = pairs.rules.scale;
  write_sums<T, kSteps>(dq, {.first = pairs.dq.row(block.sample, block.first + own, block.head),
                             .stride = pairs.dq.row_stride,
                             .count = own_rows,
                             .d = pairs.d,
                             .factor = {scale, scale}});
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
