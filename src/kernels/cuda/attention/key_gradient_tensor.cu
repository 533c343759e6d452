// The gradients of keys and values on tensor cores.
#include "kernels/cuda/attention/gradient_tensor.cuh"

namespace piton::cuda {
namespace {

// The keys of a warp in key_gradient(); a lane has two of them.
struct OwnKeys {
  int sample;
  int head;
  int index[2];
  int position[2];  // below all bounds, if the tile has no such key
  bool used[2];
};

// From products of own keys and queries first + 8 j .. to P and dS, if there are rules for scores
// or dropout: one pair after the other, as their arithmetic needs many registers.
template <typename T, int kCount>
__device__ void take_queries_by_rules(Pairs<kCount>& pairs, const BackwardGrid<T>& grid,
                                      const OwnKeys& keys, std::int64_t first,
                                      const QueryTerms* terms) {
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll 1
  for (int i = 0; i < 4 * kCount; ++i) {
    const int e = i % 4;
    const int at = 8 * (i / 4) + column + e % 2;
    PairGradient pair;
    if (first + at < grid.sight.queries && keys.used[e / 2]) {
      pair = pair_gradient(grid, keys.sample, keys.head,
                           facts_of(grid, keys.sample, keys.head, first + at, terms[at].dout_out),
                           keys.index[e / 2], pairs.p[i / 4][e], pairs.ds[i / 4][e]);
    }
    pairs.p[i / 4][e] = pair.weight;
    pairs.ds[i / 4][e] = pair.ds;
  }
}

// The same for plain pairs. `terms`: of query `first`. `all`: each key is seen by each query.
template <typename T, int kCount>
__device__ void take_queries(Pairs<kCount>& pairs, const BackwardGrid<T>& grid, const OwnKeys& keys,
                             int first, const QueryTerms* terms, bool all) {
  const KeySight& sight = grid.sight;
  const float factor = grid.rules.scale * kLogE2;
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
  for_each_block<kCount>([&](int j) {
    const TwoQueryTerms two = *reinterpret_cast<const TwoQueryTerms*>(terms + 8 * j + column);
    for (int e = 0; e < 4; ++e) take_plain(pairs, j, e, factor, two.of[e % 2]);
  });
  if (all) return;
  std::uint32_t hidden = 0;  // a bit for each pair
#pragma unroll 1             // all at a time need more registers
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
  hide(pairs, hidden);
}

// Of key_gradient(). Wide heads with rules for scores leave no registers for keys, which stay in
// the memory of the second stage.
template <int kSteps, bool kPlain>
inline constexpr int kStages = kSteps > 4 && !kPlain ? 1 : 2;

// A tile of queries of one of the heads of a key head.
struct QueryStep {
  int head;
  int first;
  bool covered;  // each query sees each key of the block
};

// A block: a tile of keys, a head of keys, a sample.
template <typename T, int kChannels, bool kPlain>
__global__ void __launch_bounds__(kTensorThreads, kBlocks) key_gradient(TensorGrid<T> grid) {
  constexpr int kSteps = kChannels / 2;
  constexpr int kPitch = kTensorPitch<kSteps>;
  constexpr bool kAhead = kStages<kSteps, kPlain> == 2;
  const Stages<T, kSteps> stages;
  T* v_tile = kAhead ? stages.own() : stages.second(1);
  const BackwardGrid<T>& pairs = grid.pairs;
  const KeySight& sight = pairs.sight;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kTensorTile;
  const std::int64_t key_head = blockIdx.y;
  const std::int64_t sample = blockIdx.z;
  const std::int64_t left = sight.keys - begin;
  const int held = static_cast<int>(left < kTensorTile ? left : kTensorTile);
  const std::int64_t visible = sight.key_count(sample) - begin;
  const int keys = static_cast<int>(visible < held ? (visible > 0 ? visible : 0) : held);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int own = static_cast<int>(threadIdx.x / kWarp) * 16;  // key of the warp, in the tile
  const int own_keys = keys - own < 16 ? keys - own : 16;      // at most 0: none
  float dk[2 * kSteps][4] = {};
  float dv[2 * kSteps][4] = {};
  const int last_head = static_cast<int>((key_head + 1) * pairs.heads_per_key);
  const int low = keys > 0 ? in_32_bits(sight.key_position(sample, begin)) : 0;
  const int high = keys > 0 ? in_32_bits(sight.key_position(sample, begin + keys - 1)) : 0;
  // Finds the first step from `step` on in which a query may see a key.
  const auto find = [&](QueryStep& step) {
    for (; step.head < last_head; ++step.head, step.first = 0) {
      for (; step.first < sight.queries; step.first += kTensorTile) {
        const std::int64_t rest = sight.queries - step.first;
        const Positions range = range_of_tile(
            sight, sample, step.first, static_cast<int>(rest < kTensorTile ? rest : kTensorTile));
        if (!sight.meets(range, low, high)) continue;
        step.covered = keys == kTensorTile && sight.covers(range, low, high);
        return true;
      }
    }
    return false;
  };
  const auto load = [&](int stage, const QueryStep& step) {
    const std::int64_t rest = sight.queries - step.first;
    const int rows = static_cast<int>(rest < kTensorTile ? rest : kTensorTile);
    load_rows<T, kSteps>(stages.first(stage), rows, pairs.d, grid.vectors,
                         [&](int i) { return pairs.q.row(sample, step.first + i, step.head); });
    load_rows<T, kSteps>(stages.second(stage), rows, pairs.d, grid.vectors,
                         [&](int i) { return pairs.dout.row(sample, step.first + i, step.head); });
    const int two = static_cast<int>(threadIdx.x) * 2;
    if (two < kTensorTile) {
      start_copy(stages.terms(stage) + two, grid.terms_of(sample, step.head) + step.first + two,
                 static_cast<int>(sizeof(TwoQueryTerms)));
    }
  };
  QueryStep step{static_cast<int>(key_head * pairs.heads_per_key), 0, false};
  bool more = keys > 0 && find(step);
  if (more) {
    load_rows<T, kSteps>(stages.first(1), keys, pairs.d, grid.vectors,
                         [&](int i) { return pairs.k.row(sample, begin + i, key_head); });
    load_rows<T, kSteps>(v_tile, keys, pairs.d, grid.vectors,
                         [&](int i) { return pairs.v.row(sample, begin + i, key_head); });
    load(0, step);
    wait_for_copies();
    __syncthreads();
    const T* own_k = stages.first(1) + own * kPitch;
    const T* own_v = v_tile + own * kPitch;
    std::uint32_t k[kSteps][4];
    if constexpr (kAhead) read_left<T, kSteps>(k, own_k);
    OwnKeys mine{.sample = static_cast<int>(sample)};
    for (int i = 0; i < 2; ++i) {
      const int row = own + lane / 4 + 8 * i;
      mine.used[i] = row < keys;
      mine.index[i] = static_cast<int>(begin) + (row < keys ? row : 0);
      mine.position[i] = row < keys ? in_32_bits(sight.key_position(sample, mine.index[i]))
                                    : static_cast<int>(-kMostPosition - 1);
    }
    const int own_low = own_keys > 0 ? in_32_bits(sight.key_position(sample, begin + own)) : low;
    const int own_high =
        own_keys > 0 ? in_32_bits(sight.key_position(sample, begin + own + own_keys - 1)) : high;
    for (int stage = 0; more; stage ^= kAhead ? 1 : 0) {
      wait_for_copies();
      __syncthreads();  // the tile is there, and the other stage has been read
      const QueryStep now = step;
      step.first += kTensorTile;
      more = find(step);
      if (kAhead && more) load(stage ^ 1, step);
      mine.head = now.head;
      for (int part = 0; part < kTensorTile; part += kPart<kSteps>) {
        const int first = now.first + part;
        const std::int64_t rest = sight.queries - first;
        if (rest <= 0 || own_keys <= 0) break;
        bool all = now.covered;
        if (!all) {
          const Positions range = query_range(
              sight, sample, first, static_cast<int>(rest < kPart<kSteps> ? rest : kPart<kSteps>));
          if (!sight.meets(range, own_low, own_high)) continue;
          all = own_keys == 16 && sight.covers(range, own_low, own_high);
        }
        const T* q = stages.first(stage) + part * kPitch;
        const T* dout = stages.second(stage) + part * kPitch;
        Pairs<kPart<kSteps> / 8> products;
        if constexpr (kAhead) {
          multiply_by_rows<T, kSteps>(products.p, k, q);
        } else {
          multiply_rows_by_rows<T, kSteps>(products.p, own_k, q);
        }
        multiply_rows_by_rows<T, kSteps>(products.ds, own_v, dout);
        if constexpr (kPlain) {
          take_queries(products, pairs, mine, first, stages.terms(stage) + part, all);
        } else {
          take_queries_by_rules(products, pairs, mine, first, stages.terms(stage) + part);
        }
        add_weighted<T, kSteps>(dv, products.p, dout);
        add_weighted<T, kSteps>(dk, products.ds, q);
      }
      if (kAhead || !more) continue;
      __syncthreads();
      load(0, step);
    }
  }
  const float scale = pairs.rules.scale;
  write_sums<T, kSteps>(dk, {.first = pairs.dk.row(sample, begin + own, key_head),
                             .stride = pairs.dk.row_stride,
                             .count = held - own,
                             .d = pairs.d,
                             .factor = {scale, scale}});
  write_sums<T, kSteps>(dv, {.first = pairs.dv.row(sample, begin + own, key_head),
                             .stride = pairs.dv.row_stride,
                             .count = held - own,
                             .d = pairs.d,
                             .factor = {1, 1}});
}

}  // namespace

template <typename T, int kChannels>
void launch_key_gradient(const AttentionBackward& call, const TensorGrid<T>& grid,
                         cudaStream_t stream) {
  if (call.k.elements() == 0) return;
  using Memory = Stages<T, kChannels / 2>;
  const int stages = grid.plain ? kStages<kChannels / 2, true> : kStages<kChannels / 2, false>;
  launch("launch of attention backward, keys",
         grid.plain ? key_gradient<T, kChannels, true> : key_gradient<T, kChannels, false>,
         {.blocks = {tiles_of(call.k.dim(1)), static_cast<unsigned>(call.k.dim(2)),
                     static_cast<unsigned>(call.q.dim(0))},
          .threads = kTensorThreads,
          .shared_bytes = stages == 2 ? Memory::kBytesWithOwn : Memory::kBytes},
         grid, stream);
}

template void launch_key_gradient<__nv_bfloat16, 8>(const AttentionBackward&,
                                                    const TensorGrid<__nv_bfloat16>&, cudaStream_t);
template void launch_key_gradient<__nv_bfloat16, 16>(const AttentionBackward&,
                                                     const TensorGrid<__nv_bfloat16>&,
                                                     cudaStream_t);
template void launch_key_gradient<__half, 8>(const AttentionBackward&, const TensorGrid<__half>&,
                                             cudaStream_t);
template void launch_key_gradient<__half, 16>(const AttentionBackward&, const TensorGrid<__half>&,
                                              cudaStream_t);

}  // namespace piton::cuda
