// Lookup of table rows by id, and noise on them.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/held_row.cuh"
#include "kernels/cuda/mask.cuh"
#include "kernels/cuda/rows.cuh"

namespace piton::cuda {
namespace {

template <typename T>
struct LookUp {
  static constexpr int kVector = kVectorOf<T>;
  T* y;
  const T* table;
  const std::int32_t* ids;
  std::int64_t rows;
  std::int64_t h;
  std::int64_t begin;
  bool add;
  const std::int32_t* used;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t id = ids[row] - begin;
    const bool here = id >= 0 && id < rows;
    if (!here && add) return;
    T* to = y + row * h + column;
    if (here && !add) return store(to, load<kCount>(table + id * h + column));
    auto value = load_or_zero<kCount>(here ? table + id * h + column : nullptr);
    if (add) {
      const auto before = load_wide<kCount>(to);
      for (int i = 0; i < kCount; ++i) value.at[i] += before.at[i];
    }
    store_rounded(to, value);
  }
};

template <typename T>
struct TableGradient {
  Wide<T>* dtable;
  const T* dy;
  const std::int32_t* ids;
  std::int64_t n;
  std::int64_t rows;
  std::int64_t h;
  std::int64_t begin;
  bool vectors;
};

template <typename T>
struct NoiseOnRows {
  static constexpr int kVector = kVectorOf<T>;
  T* y;
  const float* bounds;  // null: 1
  std::int64_t h;
  MaskSite site;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    using S = Wide<T>;
    auto value = load_wide<kCount>(y + row * h + column);
    const S bound = bounds == nullptr ? S{1} : static_cast<S>(bounds[row]);
    const S step = bound * S{0x1p-31};
    site.for_each_word<kCount>(row, column, [&](int i, std::uint32_t word) {
      value.at[i] += static_cast<S>(static_cast<std::int32_t>(word)) * step;
    });
    store_rounded(y + row * h + column, value);
  }
};

constexpr int kIdsOfThread = 4;  // that a thread compares at a time
constexpr int kIdsOfBlock = kIdsOfThread * kThreads;
constexpr int kIdWords = kIdsOfBlock / kWarp;

// Block (i, j) adds all rows that have the id of row i, in their order, if row i is the first of
// them: a vector of columns for each thread, of the j-th part of the columns. The rows are found by
// comparing ids, which all fit in the caches: the first loop has n^2 / 2 comparisons for all
// blocks, 0.1 ms for 32768 rows.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) add_table_rows(TableGradient<T> all) {
  using S = Wide<T>;
  constexpr int kCount = kVectorOf<T, S>;
  int* parts = shared_array<int>();                                     // [kWarps]
  unsigned* found = shared_array<unsigned>(kWarps * sizeof(int));       // [kIdWords]
  int* matches = shared_array<int>((kWarps + kIdWords) * sizeof(int));  // [kIdsOfBlock]
  const std::int64_t first = blockIdx.x;
  const std::int32_t wanted = all.ids[first];
  const std::int64_t id = wanted - all.begin;
  if (id < 0 || id >= all.rows) return;
  int earlier = 0;
#pragma unroll 8
  for (std::int64_t row = threadIdx.x; row < first; row += kThreads) {
    if (all.ids[row] == wanted) earlier = 1;
  }
  if (reduced(earlier, parts, Largest{}) != 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const unsigned lower_lanes = (1U << lane) - 1;
  const std::int64_t column = (std::int64_t{blockIdx.y} * kThreads + threadIdx.x) * kCount;
  const bool mine = column < all.h;
  S* to = all.dtable + id * all.h;
  Numbers<S, kCount> sum = {};
  if (mine) sum = load_part<kCount>(to, column, all.h, all.vectors);
  for (std::int64_t begin = first; begin < all.n; begin += kIdsOfBlock) {
    __syncthreads();  // the last matches have been read
    bool same[kIdsOfThread];
#pragma unroll
    for (int j = 0; j < kIdsOfThread; ++j) {
      const std::int64_t row = begin + j * kThreads + threadIdx.x;
      same[j] = row < all.n && all.ids[row] == wanted;
      const unsigned word = __ballot_sync(kAllLanes, same[j]);
      if (lane == 0) found[j * kWarps + warp] = word;
    }
    __syncthreads();
    // Each lane counts the matches of one word, and of those before it.
    static_assert(kIdWords == kWarp);
    const int in_word = __popc(found[lane]);
    int up_to = in_word;
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const int other = __shfl_sync(kAllLanes, up_to, lane < distance ? lane : lane - distance);
      if (lane >= distance) up_to += other;
    }
    const int count = __shfl_sync(kAllLanes, up_to, kWarp - 1);
    if (count == 0) continue;
#pragma unroll
    for (int j = 0; j < kIdsOfThread; ++j) {
      const int before = __shfl_sync(kAllLanes, up_to - in_word, j * kWarps + warp);
      const int rank = before + __popc(found[j * kWarps + warp] & lower_lanes);
      if (same[j]) matches[rank] = j * kThreads + static_cast<int>(threadIdx.x);
    }
    __syncthreads();
    if (!mine) continue;
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const T* dy = all.dy + (begin + matches[i]) * all.h;
      const auto row = load_part<kCount>(dy, column, all.h, all.vectors);
#pragma unroll
      for (int c = 0; c < kCount; ++c) sum.at[c] += widen(row.at[c]);
    }
  }
  if (mine) store_part(to, column, all.h, all.vectors, sum);
}

}  // namespace

void execute(const EmbeddingForward& call, const CallContext& context) {
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch_rows("launch of embedding forward", rows_of(call.y, kVectorOf<T>, {call.y, call.table}),
                LookUp<T>{.y = pointer<T>(call.y),
                          .table = pointer<const T>(call.table),
                          .ids = pointer<const std::int32_t>(call.ids),
                          .rows = call.table.dim(0),
                          .h = call.table.dim(1),
                          .begin = call.vocabulary_begin,
                          .add = call.add,
                          .used = pointer<const std::int32_t>(call.used)},
                context.stream);
  });
}

void execute(const EmbeddingBackward& call, const CallContext& context) {
  const std::int64_t n = call.ids.dim(0);
  const std::int64_t h = call.dtable.dim(1);
  if (n == 0 || h == 0) return;
  with_floating(call.dy.dtype(), [&]<typename T>(std::type_identity<T>) {
    constexpr int kCount = kVectorOf<T, Wide<T>>;
    const std::int64_t parts = (h + kThreads * kCount - 1) / (kThreads * kCount);
    launch(
        "launch of embedding backward", add_table_rows<T>,
        {.blocks = {static_cast<unsigned>(n), static_cast<unsigned>(parts), 1},
         .shared_bytes = (kWarps + kIdWords + kIdsOfBlock) * sizeof(int)},
        TableGradient<T>{.dtable = pointer<Wide<T>>(call.dtable),
                         .dy = pointer<const T>(call.dy),
                         .ids = pointer<const std::int32_t>(call.ids),
                         .n = n,
                         .rows = call.dtable.dim(0),
                         .h = h,
                         .begin = call.vocabulary_begin,
                         .vectors = h % kCount == 0 && vectors_fit(kCount, {call.dtable, call.dy})},
        context.stream);
  });
}

void execute(const AddNoise& call, const CallContext& context) {
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch_rows("launch of add noise", rows_of(call.y, kVectorOf<T>, {call.y}),
                NoiseOnRows<T>{.y = pointer<T>(call.y),
                               .bounds = pointer<const float>(call.bounds),
                               .h = call.y.dim(1),
                               .site = mask_site(call.key, call.rows)},
                context.stream);
  });
}

}  // namespace piton::cuda
