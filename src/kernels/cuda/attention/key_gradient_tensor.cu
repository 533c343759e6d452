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
        query_range(sight, sample, first, static_cast<int>(rest < most ? rest : most));
    if (!sight.meets(range, low, high)) return false;
    all = count == 16 && sight.covers(range, low, high);
    return true;
  }
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

// The terms of query `first`, and the words of its kept pairs that have the keys of the warp.
struct QueriesOfStep {
  const QueryTerms* terms;
  const std::uint32_t* kept;
  int first_bit;  // of the lane's first key
};

// The same without rules. `all`: each key is seen by each query.
template <typename T, int kCount, bool kDrops>
__device__ void take_queries(Pairs<kCount>& pairs, const BackwardGrid<T>& grid, const OwnKeys& keys,
                             int first, const QueriesOfStep& step, bool all) {
  const KeySight& sight = grid.sight;
  const float factor = grid.rules.scale * kLogE2;
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
  for_each_block<kCount>([&](int j) {
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
template <int kSteps, PairForm kForm>
inline constexpr int kStages = kSteps > 4 && kForm != PairForm::kPlain ? 1 : 2;

// A tile of queries of one of the heads of a key head.
struct QueryStep {
  int head;
  int first;
  bool covered;  // each query sees each key of the block
};

// What a block owns: a tile of keys, of a head of keys and a sample.
template <typename T, int kSteps, PairForm kForm>
struct KeyBlock {
  const TensorGrid<T>& grid;
  Stages<T, kSteps> stages;
  std::int64_t begin;
  std::int64_t key_head;
  std::int64_t sample;
  int held;  // keys of the tile
  int keys;  // those that a query may see
  int low = 0;
  int high = 0;  // their positions

  __device__ explicit KeyBlock(const TensorGrid<T>& of)
      : grid(of),
        begin(std::int64_t{blockIdx.x} * kTensorTile),
        key_head(blockIdx.y),
        sample(blockIdx.z) {
    const KeySight& sight = grid.pairs.sight;
    const std::int64_t left = sight.keys - begin;
    held = static_cast<int>(left < kTensorTile ? left : kTensorTile);
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
        step.covered = keys == kTensorTile && sight.covers(range, low, high);
        return true;
      }
    }
    return false;
  }

  // Copies the queries of a step, what else belongs to them, and draws the kept pairs.
  __device__ void load(int stage, const QueryStep& step) const {
    const BackwardGrid<T>& pairs = grid.pairs;
    const std::int64_t rest = pairs.sight.queries - step.first;
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
    if constexpr (kForm == PairForm::kDropped) {
      draw_kept(stages.kept(stage), pairs.rules, {sample, step.head, low}, [&](int i) {
        return pairs.sight.place_of(sample, step.first + (i < rows ? i : 0)).first;
      });
    }
  }

  __device__ void load_own(T* v_tile) const {
    const BackwardGrid<T>& pairs = grid.pairs;
    load_rows<T, kSteps>(stages.first(1), keys, pairs.d, grid.vectors,
                         [&](int i) { return pairs.k.row(sample, begin + i, key_head); });
    load_rows<T, kSteps>(v_tile, keys, pairs.d, grid.vectors,
                         [&](int i) { return pairs.v.row(sample, begin + i, key_head); });
  }

  // Of the warp whose first key in the tile is `own`.
  __device__ OwnKeys own_keys(int own) const {
    const KeySight& sight = grid.pairs.sight;
    OwnKeys mine{.sample = static_cast<int>(sample)};
    for (int i = 0; i < 2; ++i) {
      const int row = own + static_cast<int>(threadIdx.x % kWarp / 4) + 8 * i;
      mine.used[i] = row < keys;
      mine.index[i] = static_cast<int>(begin) + (row < keys ? row : 0);
      mine.position[i] = row < keys ? in_32_bits(sight.key_position(sample, mine.index[i]))
                                    : static_cast<int>(-kMostPosition - 1);
    }
    mine.count = keys - own < 16 ? keys - own : 16;
    const std::int64_t first = begin + (mine.count > 0 ? own : 0);
    mine.low = in_32_bits(sight.key_position(sample, first));
    mine.high =
        in_32_bits(sight.key_position(sample, first + (mine.count > 0 ? mine.count : 1) - 1));
    return mine;
  }

  __device__ void write(const float (&sums)[2 * kSteps][4], const HeadMatrix<T>& gradient, int own,
                        float scale) const {
    write_sums<T, kSteps>(sums, {.first = gradient.row(sample, begin + own, key_head),
                                 .stride = gradient.row_stride,
                                 .count = held - own,
                                 .d = grid.pairs.d,
                                 .factor = {scale, scale}});
  }
};

// A block: a tile of keys, a head of keys, a sample.
template <typename T, int kChannels, PairForm kForm>
__global__ void __launch_bounds__(kTensorThreads, kBlocks) key_gradient(TensorGrid<T> grid) {
  constexpr int kSteps = kChannels / 2;
  constexpr int kPitch = kTensorPitch<kSteps>;
  constexpr bool kAhead = kStages<kSteps, kForm> == 2;
  const KeyBlock<T, kSteps, kForm> block(grid);
  const Stages<T, kSteps>& stages = block.stages;
  T* v_tile = kAhead ? stages.own() : stages.second(1);
  const BackwardGrid<T>& pairs = grid.pairs;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int own = static_cast<int>(threadIdx.x / kWarp) * 16;  // key of the warp, in the tile
  float dk[2 * kSteps][4] = {};
  float dv[2 * kSteps][4] = {};
  QueryStep step{static_cast<int>(block.key_head * pairs.heads_per_key), 0, false};
  bool more = block.keys > 0 && block.find(step);
  if (more) {
    block.load_own(v_tile);
    block.load(0, step);
    wait_for_copies();
    __syncthreads();
    const T* own_k = stages.first(1) + own * kPitch;
    const T* own_v = v_tile + own * kPitch;
    std::uint32_t k[kSteps][4];
    if constexpr (kAhead) read_left<T, kSteps>(k, own_k);
    OwnKeys mine = block.own_keys(own);
    for (int stage = 0; more; stage ^= kAhead ? 1 : 0) {
      wait_for_copies();
      __syncthreads();  // the tile is there, and the other stage has been read
      const QueryStep now = step;
      step.first += kTensorTile;
      more = block.find(step);
      if (kAhead && more) block.load(stage ^ 1, step);
      mine.head = now.head;
      for (int part = 0; part < kTensorTile; part += kPart<kSteps>) {
        const int first = now.first + part;
        bool all = now.covered;
        if (!mine.meets(pairs.sight, first, kPart<kSteps>, all)) continue;
        const T* q = stages.first(stage) + part * kPitch;
        const T* dout = stages.second(stage) + part * kPitch;
        Pairs<kPart<kSteps> / 8> products;
        if constexpr (kAhead) {
          multiply_by_rows<T, kSteps>(products.p, k, q);
        } else {
          multiply_rows_by_rows<T, kSteps>(products.p, own_k, q);
        }
        multiply_rows_by_rows<T, kSteps>(products.ds, own_v, dout);
        if constexpr (kForm != PairForm::kRuled) {
          const QueriesOfStep queries{stages.terms(stage) + part,
                                      stages.kept(stage) + part * kWordsOfRow + own / kWordBits,
                                      own % kWordBits + lane / 4};
          take_queries<T, kPart<kSteps> / 8, kForm == PairForm::kDropped>(products, pairs, mine,
                                                                          first, queries, all);
        } else {
          take_queries_by_rules(products, pairs, mine, first, stages.terms(stage) + part);
        }
        add_weighted<T, kSteps>(dv, products.p, dout);
        add_weighted<T, kSteps>(dk, products.ds, q);
      }
      if (kAhead || !more) continue;
      __syncthreads();
      block.load(0, step);
    }
  }
  block.write(dk, pairs.dk, own, pairs.rules.scale);
  block.write(dv, pairs.dv, own, 1);
}

}  // namespace

template <typename T, int kChannels>
void launch_key_gradient(const AttentionBackward& call, const TensorGrid<T>& grid,
                         cudaStream_t stream) {
  if (call.k.elements() == 0) return;
  using Memory = Stages<T, kChannels / 2>;
  with_form(grid.form, [&]<PairForm kForm>(std::integral_constant<PairForm, kForm>) {
    constexpr bool kOwn = kStages<kChannels / 2, kForm> == 2;
    launch("launch of attention backward, keys", key_gradient<T, kChannels, kForm>,
           {.blocks = {tiles_of(call.k.dim(1)), static_cast<unsigned>(call.k.dim(2)),
                       static_cast<unsigned>(call.q.dim(0))},
            .threads = kTensorThreads,
            .shared_bytes = kOwn ? Memory::kBytesWithOwn : Memory::kBytes},
           grid, stream);
  });
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
