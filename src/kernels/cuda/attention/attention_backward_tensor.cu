// Gradients of attention on tensor cores, by the formulas of attention_backward.cu: a kernel for
// queries, and one for keys and values.
//
// A warp owns 16 rows: queries, or keys. The scores of its rows and a tile of the other side, and
// their gradients, stay in its registers, where they are the left sides of the next products. They
// are rounded to the type of the rows for these; all sums are in fp32. While a tile is multiplied,
// the next one is copied.
#include "kernels/cuda/attention/attention_gradient.cuh"
#include "kernels/cuda/attention/tensor_tiles.cuh"
#include "kernels/cuda/scratch.h"

namespace piton::cuda {
namespace {

// The log-sum-exp of a query in base 2, or infinity if it sees no key: P is 0 then; and
// dout . out.
struct alignas(8) QueryTerms {
  float lse;
  float dout_out;
};
struct alignas(16) TwoQueryTerms {
  QueryTerms of[2];
};

template <typename T>
struct TensorGrid {
  BackwardGrid<T> pairs;
  QueryTerms* terms;    // [b, a, padded]
  std::int64_t padded;  // queries of a sample, and those that fill the last tile
  std::int64_t samples;
  bool vectors;  // in_vectors(), of all inputs

  __device__ const QueryTerms* terms_of(std::int64_t sample, std::int64_t head) const {
    return terms + (sample * pairs.heads + head) * padded;
  }
};

template <typename T>
struct alignas(16) VectorOf {
  T number[8];
};

template <typename T>
__device__ float add_dot(float sum, const VectorOf<T>& a, const VectorOf<T>& b) {
  for (int i = 0; i < 8; ++i) sum = fmaf(widen(a.number[i]), widen(b.number[i]), sum);
  return sum;
}

// kLanes threads: a query of a head.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) query_terms(TensorGrid<T> grid) {
  const BackwardGrid<T>& pairs = grid.pairs;
  const std::int64_t item = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  const std::int64_t row = item % grid.padded;
  const std::int64_t head = item / grid.padded % pairs.heads;
  const std::int64_t sample = item / grid.padded / pairs.heads;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const bool used = sample < grid.samples && row < pairs.sight.queries;
  float sum = 0;
  if (used) {
    const T* dout = pairs.dout.row(sample, row, head);
    const T* out = pairs.out.row(sample, row, head);
    for (std::int64_t c = 8 * lane; c < pairs.d; c += 8 * kLanes) {
      if (grid.vectors && c + 8 <= pairs.d) {
        sum = add_dot(sum, *reinterpret_cast<const VectorOf<T>*>(dout + c),
                      *reinterpret_cast<const VectorOf<T>*>(out + c));
      } else {
        for (std::int64_t i = c; i < c + 8 && i < pairs.d; ++i)
          sum = fmaf(widen(dout[i]), widen(out[i]), sum);
      }
    }
  }
  sum = row_sum(sum);
  if (sample >= grid.samples || lane != 0) return;
  const float lse =
      used ? pairs.lse[(sample * pairs.heads + head) * pairs.sight.queries + row] : kNothing;
  grid.terms[item] = {lse == kNothing ? -kNothing : lse * kLogE2, sum};
}

// Two tiles of the other side and the terms of their rows, twice: one is used, the other filled.
template <typename T, int kSteps>
struct Stages {
  static constexpr int kTerms = kTensorTile * static_cast<int>(sizeof(QueryTerms) / sizeof(T));
  static constexpr int kNumbers = 2 * kTensorNumbers<kSteps> + kTerms;
  static constexpr std::size_t kBytes = 2 * kNumbers * sizeof(T);
  static constexpr std::size_t kBytesWithOwn = kBytes + kTensorNumbers<kSteps> * sizeof(T);

  __device__ T* first(int stage) const { return shared_array<T>() + stage * kNumbers; }
  __device__ T* second(int stage) const { return first(stage) + kTensorNumbers<kSteps>; }
  __device__ QueryTerms* terms(int stage) const {
    return reinterpret_cast<QueryTerms*>(second(stage) + kTensorNumbers<kSteps>);
  }
  __device__ T* own() const { return shared_array<T>() + 2 * kNumbers; }
};

// How many rows of the other side a warp multiplies at a time: more of them hide the latency of
// the tensor cores, fewer leave registers for wide heads.
template <int kSteps>
inline constexpr int kPart = kSteps <= 4 ? 32 : 16;

// P, and the gradients of the scaled products, of 16 rows and kCount blocks of 8.
template <int kCount>
struct Pairs {
  float p[kCount][4];   // before: products
  float ds[kCount][4];  // before: dout . v
};

// P and dS of a plain pair that is visible.
template <int kCount>
__device__ void take_plain(Pairs<kCount>& pairs, int j, int e, float factor,
                           const QueryTerms& terms) {
  const float p = power_of_two(fmaf(pairs.p[j][e], factor, -terms.lse));
  pairs.ds[j][e] = p * (pairs.ds[j][e] - terms.dout_out);
  pairs.p[j][e] = p;
}

template <typename T>
__device__ QueryFacts facts_of(const BackwardGrid<T>& grid, std::int64_t sample, std::int64_t head,
                               std::int64_t query, float dout_out) {
  return {query, grid.sight.place_of(sample, query),
          grid.lse[(sample * grid.heads + head) * grid.sight.queries + query], dout_out};
}

// The keys of a warp in key_gradient(); a lane has two of them.
struct OwnKeys {
  std::int64_t sample;
  std::int64_t head;
  int index[2];
  int position[2];
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
                             std::int64_t first, const QueryTerms* terms, bool all) {
  const KeySight& sight = grid.sight;
  const float factor = grid.rules.scale * kLogE2;
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
  for_each_block<kCount>([&](int j) {
    const TwoQueryTerms two = *reinterpret_cast<const TwoQueryTerms*>(terms + 8 * j + column);
    for (int e = 0; e < 4; ++e) take_plain(pairs, j, e, factor, two.of[e % 2]);
    if (all) return;
    for (int h = 0; h < 2; ++h) {
      const std::int64_t query = first + 8 * j + column + h;
      const bool used = query < sight.queries;
      const std::int64_t known = used ? query : first;
      const Bounds bounds = sight.bounds_of(sight.place_of(keys.sample, known));
      for (int i = 0; i < 2; ++i) {
        const bool seen = used && keys.used[i] && keys.position[i] >= bounds.first &&
                          keys.position[i] <= bounds.last &&
                          sight.same_segment(keys.sample, known, keys.index[i]);
        if (!seen) pairs.p[j][2 * i + h] = pairs.ds[j][2 * i + h] = 0;
      }
    }
  });
}

// Of key_gradient(). Wide heads with rules for scores leave no registers for keys, which stay in
// the memory of the second stage.
template <int kSteps, bool kPlain>
inline constexpr int kStages = kSteps > 4 && !kPlain ? 1 : 2;

// A tile of queries of one of the heads of a key head.
struct QueryStep {
  std::int64_t head;
  std::int64_t first;
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
  const std::int64_t last_head = (key_head + 1) * pairs.heads_per_key;
  const std::int64_t low = keys > 0 ? sight.key_position(sample, begin) : 0;
  const std::int64_t high = keys > 0 ? sight.key_position(sample, begin + keys - 1) : 0;
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
  QueryStep step{key_head * pairs.heads_per_key, 0, false};
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
    OwnKeys mine{.sample = sample};
    for (int i = 0; i < 2; ++i) {
      const int row = own + lane / 4 + 8 * i;
      mine.used[i] = row < keys;
      mine.index[i] = static_cast<int>(begin) + (row < keys ? row : 0);
      mine.position[i] = in_32_bits(sight.key_position(sample, mine.index[i]));
    }
    const std::int64_t own_low = own_keys > 0 ? sight.key_position(sample, begin + own) : low;
    const std::int64_t own_high =
        own_keys > 0 ? sight.key_position(sample, begin + own + own_keys - 1) : high;
    for (int stage = 0; more; stage ^= kAhead ? 1 : 0) {
      wait_for_copies();
      __syncthreads();  // the tile is there, and the other stage has been read
      const QueryStep now = step;
      step.first += kTensorTile;
      more = find(step);
      if (kAhead && more) load(stage ^ 1, step);
      mine.head = now.head;
      for (int part = 0; part < kTensorTile; part += kPart<kSteps>) {
        const std::int64_t first = now.first + part;
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

// As take_queries(), of own queries and keys first + 8 j .., of `count`.
template <typename T, int kCount>
__device__ void take_keys(Pairs<kCount>& pairs, const BackwardGrid<T>& grid,
                          const OwnQueries& queries, std::int64_t first, int count, bool all) {
  const KeySight& sight = grid.sight;
  const float factor = grid.rules.scale * kLogE2;
  const int column = static_cast<int>(threadIdx.x % 4) * 2;
  for_each_block<kCount>([&](int j) {
    for (int e = 0; e < 4; ++e) take_plain(pairs, j, e, factor, queries.terms[e / 2]);
    if (all) return;
    for (int h = 0; h < 2; ++h) {
      const bool used = 8 * j + column + h < count;
      const std::int64_t key = first + (used ? 8 * j + column + h : 0);
      const std::int64_t at = sight.key_position(queries.sample, key);
      for (int i = 0; i < 2; ++i) {
        const bool seen = used && at >= queries.bounds[i].first && at <= queries.bounds[i].last &&
                          sight.same_segment(queries.sample, queries.index[i], key);
        if (!seen) pairs.ds[j][2 * i + h] = 0;
      }
    }
  });
}

// A block: a tile of queries, a head, a sample. Under a causal mask the last tile sees the most
// keys, so it is the first to start.
template <typename T, int kChannels, bool kPlain>
__global__ void __launch_bounds__(kTensorThreads, kBlocks) query_gradient(TensorGrid<T> grid) {
  constexpr int kSteps = kChannels / 2;
  constexpr int kPitch = kTensorPitch<kSteps>;
  const Stages<T, kSteps> stages;
  const BackwardGrid<T>& pairs = grid.pairs;
  const KeySight& sight = pairs.sight;
  const std::int64_t first = std::int64_t{gridDim.x - 1 - blockIdx.x} * kTensorTile;
  const std::int64_t head = blockIdx.y;
  const std::int64_t sample = blockIdx.z;
  const std::int64_t key_head = head / pairs.heads_per_key;
  const std::int64_t left = sight.queries - first;
  const int rows = static_cast<int>(left < kTensorTile ? left : kTensorTile);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int own = static_cast<int>(threadIdx.x / kWarp) * 16;  // query of the warp, in the tile
  const int own_rows = rows - own < 16 ? rows - own : 16;      // at most 0: none
  const std::int64_t keys = sight.key_count(sample);
  const Positions whole = range_of_tile(sight, sample, first, rows);
  float dq[2 * kSteps][4] = {};
  // Finds the first tile from `begin` on that a query may see a key of.
  const auto find = [&](std::int64_t& begin) {
    for (; begin < keys; begin += kTensorTile) {
      const std::int64_t end = keys < begin + kTensorTile ? keys : begin + kTensorTile;
      if (sight.meets(whole, sight.key_position(sample, begin),
                      sight.key_position(sample, end - 1))) {
        return true;
      }
    }
    return false;
  };
  const auto load = [&](int stage, std::int64_t begin) {
    const int count = static_cast<int>(keys - begin < kTensorTile ? keys - begin : kTensorTile);
    load_rows<T, kSteps>(stages.first(stage), count, pairs.d, grid.vectors,
                         [&](int i) { return pairs.k.row(sample, begin + i, key_head); });
    load_rows<T, kSteps>(stages.second(stage), count, pairs.d, grid.vectors,
                         [&](int i) { return pairs.v.row(sample, begin + i, key_head); });
  };
  std::int64_t begin = 0;
  bool more = find(begin);
  if (more) {
    load_rows<T, kSteps>(stages.first(1), rows, pairs.d, grid.vectors,
                         [&](int i) { return pairs.q.row(sample, first + i, head); });
    load_rows<T, kSteps>(stages.own(), rows, pairs.d, grid.vectors,
                         [&](int i) { return pairs.dout.row(sample, first + i, head); });
    load(0, begin);
    wait_for_copies();
    __syncthreads();
    std::uint32_t q[kSteps][4];
    read_left<T, kSteps>(q, stages.first(1) + own * kPitch);
    const T* dout = stages.own() + own * kPitch;
    OwnQueries mine{.sample = sample, .head = head};
    for (int i = 0; i < 2; ++i) {
      const int row = own + lane / 4 + 8 * i;
      mine.used[i] = row < rows;
      mine.index[i] = first + (row < rows ? row : 0);
      mine.bounds[i] = sight.bounds_of(sight.place_of(sample, mine.index[i]));
      mine.terms[i] = grid.terms_of(sample, head)[first + row];
    }
    const Positions range =
        own_rows > 0 ? query_range(sight, sample, first + own, own_rows) : whole;
    for (int stage = 0; more; stage ^= 1) {
      wait_for_copies();
      __syncthreads();  // the tile is there, and the other stage has been read
      const std::int64_t now = begin;
      begin += kTensorTile;
      more = find(begin);
      if (more) load(stage ^ 1, begin);
      if (own_rows <= 0) continue;
      for (int part = 0; part < kTensorTile; part += kPart<kSteps>) {
        const std::int64_t from = now + part;
        if (from >= keys) break;
        const int count =
            static_cast<int>(keys - from < kPart<kSteps> ? keys - from : kPart<kSteps>);
        const std::int64_t low = sight.key_position(sample, from);
        const std::int64_t high = sight.key_position(sample, from + count - 1);
        if (!sight.meets(range, low, high)) continue;
        const T* k = stages.first(stage) + part * kPitch;
        const T* v = stages.second(stage) + part * kPitch;
        Pairs<kPart<kSteps> / 8> products;
        multiply_by_rows<T, kSteps>(products.p, q, k);
        multiply_rows_by_rows<T, kSteps>(products.ds, dout, v);
        if constexpr (kPlain) {
          take_keys(products, pairs, mine, from, count,
                    count == kPart<kSteps> && sight.covers(range, low, high));
        } else {
          take_keys_by_rules(products, pairs, mine, from, count);
        }
        add_weighted<T, kSteps>(dq, products.ds, k);
      }
    }
  }
  const float scale = pairs.rules.scale;
  write_sums<T, kSteps>(dq, {.first = pairs.dq.row(sample, first + own, head),
                             .stride = pairs.dq.row_stride,
                             .count = own_rows,
                             .d = pairs.d,
                             .factor = {scale, scale}});
}

inline unsigned tiles_of(std::int64_t rows) {
  return static_cast<unsigned>((rows + kTensorTile - 1) / kTensorTile);
}

// `kPlain`: a score is a scaled product, and there is no dropout.
template <typename T, int kChannels, bool kPlain>
void launch_tiles(const AttentionBackward& call, const TensorGrid<T>& grid, cudaStream_t stream) {
  const auto samples = static_cast<unsigned>(call.q.dim(0));
  if (call.q.elements() > 0) {
    launch("launch of attention backward, queries", query_gradient<T, kChannels, kPlain>,
           {.blocks = {tiles_of(call.q.dim(1)), static_cast<unsigned>(call.q.dim(2)), samples},
            .threads = kTensorThreads,
            .shared_bytes = Stages<T, kChannels / 2>::kBytesWithOwn},
           grid, stream);
  }
  if (call.k.elements() > 0) {
    launch("launch of attention backward, keys", key_gradient<T, kChannels, kPlain>,
           {.blocks = {tiles_of(call.k.dim(1)), static_cast<unsigned>(call.k.dim(2)), samples},
            .threads = kTensorThreads,
            .shared_bytes = kStages<kChannels / 2, kPlain> == 2
                                ? Stages<T, kChannels / 2>::kBytesWithOwn
                                : Stages<T, kChannels / 2>::kBytes},
           grid, stream);
  }
}

}  // namespace

template <typename T, int kChannels>
void launch_gradients_on_tensor_cores(const AttentionBackward& call, const CallContext& context) {
  const std::int64_t padded = std::int64_t{tiles_of(call.q.dim(1))} * kTensorTile;
  const std::int64_t items = call.q.dim(0) * call.q.dim(2) * padded;
  const Tensor terms =
      scratch(DType::kF32, {std::max<std::int64_t>(items, 1), 2}, call.q.place(), context.stream);
  bool vectors = true;
  for (const Tensor* input : {&call.q, &call.k, &call.v, &call.dout, &call.out})
    vectors = vectors && in_vectors(*input);
  const TensorGrid<T> grid{.pairs = backward_grid<T>(call),
                           .terms = pointer<QueryTerms>(terms),
                           .padded = padded,
                           .samples = call.q.dim(0),
                           .vectors = vectors};
  if (call.q.elements() > 0) {
    launch("launch of the terms of queries, attention backward", query_terms<T>,
           {.blocks = {static_cast<unsigned>((items * kLanes + kThreads - 1) / kThreads), 1, 1}},
           grid, context.stream);
  }
  if (call.soft_cap == 0 && call.dropout.probability == 0 && !call.mask.slopes.defined() &&
      !call.mask.bias.defined()) {
    launch_tiles<T, kChannels, true>(call, grid, context.stream);
  } else {
    launch_tiles<T, kChannels, false>(call, grid, context.stream);
  }
}

template void launch_gradients_on_tensor_cores<__nv_bfloat16, 8>(const AttentionBackward& call,
                                                                 const CallContext& context);
template void launch_gradients_on_tensor_cores<__nv_bfloat16, 16>(const AttentionBackward& call,
                                                                  const CallContext& context);
template void launch_gradients_on_tensor_cores<__half, 8>(const AttentionBackward& call,
                                                          const CallContext& context);
template void launch_gradients_on_tensor_cores<__half, 16>(const AttentionBackward& call,
                                                           const CallContext& context);

}  // namespace piton::cuda
