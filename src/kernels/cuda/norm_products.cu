// What the gradient of an RMS norm needs of rows that ranks have parts of: one block for a row.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace piton::cuda {
namespace {

template <typename X, typename T>
struct ProductRows {
  Wide<T>* products;
  const T* dy;
  const X* x;
  const T* gain;
  const Wide<T>* rstd;
  Wide<T> gain_offset;
  std::int64_t h;
};

template <typename X, typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) multiply_rows(ProductRows<X, T> rows) {
  using S = Wide<T>;
  S* parts = shared_array<S>();
  const std::int64_t row = blockIdx.x;
  const X* x = rows.x + row * rows.h;
  const T* dy = rows.dy + row * rows.h;
  S sum = 0;
  for (std::int64_t i = threadIdx.x; i < rows.h; i += kThreads)
    sum += widen(dy[i]) * (widen(rows.gain[i]) + rows.gain_offset) * widen(x[i]);
  sum = block_sum(sum, parts);
  if (threadIdx.x == 0) rows.products[row] = sum * rows.rstd[row];
}

}  // namespace

void execute(const NormProducts& call, const CallContext& context) {
  const std::int64_t n = call.x.dim(0);
  if (n == 0) return;
  with_stream(
      call.x.dtype(), call.dy.dtype(),
      [&]<typename X, typename T>(std::type_identity<X>, std::type_identity<T>) {
        using S = Wide<T>;
        launch("launch of norm products", multiply_rows<X, T>,
               {.blocks = {static_cast<unsigned>(n), 1, 1}, .shared_bytes = kWarps * sizeof(S)},
               ProductRows<X, T>{.products = pointer<S>(call.products),
                                 .dy = pointer<const T>(call.dy),
                                 .x = pointer<const X>(call.x),
                                 .gain = pointer<const T>(call.gain),
                                 .rstd = pointer<const S>(call.rstd),
                                 .gain_offset = static_cast<S>(call.gain_offset),
                                 .h = call.x.dim(1)},
               context.stream);
      });
}

}  // namespace piton::cuda
