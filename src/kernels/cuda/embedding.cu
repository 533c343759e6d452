// Lookup of table rows by id.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/reduce.cuh"
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
};

// Block i adds all rows that have the id of row i, in their order, if row i is the first of them.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) add_table_rows(TableGradient<T> all) {
  int* parts = shared_array<int>();                                       // [kWarps]
  std::int32_t* some = shared_array<std::int32_t>(kWarps * sizeof(int));  // [kThreads]
  const std::int64_t first = blockIdx.x;
  const std::int32_t wanted = all.ids[first];
  const std::int64_t id = wanted - all.begin;
  if (id < 0 || id >= all.rows) return;
  int earlier = 0;
  for (std::int64_t row = threadIdx.x; row < first; row += kThreads) {
    if (all.ids[row] == wanted) earlier = 1;
  }
  if (reduced(earlier, parts, Largest{}) != 0) return;
  Wide<T>* sums = all.dtable + id * all.h;
  for (std::int64_t begin = first; begin < all.n; begin += kThreads) {
    __syncthreads();
    const std::int64_t mine = begin + threadIdx.x;
    const bool found = mine < all.n && all.ids[mine] == wanted;
    some[threadIdx.x] = found ? 1 : 0;
    if (reduced(found ? 1 : 0, parts, Largest{}) == 0) continue;
    for (int i = 0; i < kThreads; ++i) {
      if (some[i] == 0) continue;
      const T* dy = all.dy + (begin + i) * all.h;
      for (std::int64_t c = threadIdx.x; c < all.h; c += kThreads) sums[c] += widen(dy[c]);
    }
  }
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
                          .add = call.add},
                context.stream);
  });
}

void execute(const EmbeddingBackward& call, const CallContext& context) {
  const std::int64_t n = call.ids.dim(0);
  if (n == 0) return;
  with_floating(call.dy.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch("launch of embedding backward", add_table_rows<T>,
           {.blocks = {static_cast<unsigned>(n), 1, 1},
            .shared_bytes = (kWarps + kThreads) * sizeof(int)},
           TableGradient<T>{.dtable = pointer<Wide<T>>(call.dtable),
                            .dy = pointer<const T>(call.dy),
                            .ids = pointer<const std::int32_t>(call.ids),
                            .n = n,
                            .rows = call.dtable.dim(0),
                            .h = call.dtable.dim(1),
                            .begin = call.vocabulary_begin},
           context.stream);
  });
}

}  // namespace piton::cuda
