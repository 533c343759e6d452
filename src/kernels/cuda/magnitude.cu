// The columns of a product at the lengths of their magnitudes; sums over rows, with one block for a
// row: of squares, and of what the gradient of an RMS norm needs.
#include <cmath>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/magnitude.h"
#include "kernels/norm.h"

namespace piton::cuda {
namespace {

template <typename T>
struct SquaredRows {
  Wide<T>* squares;
  const T* rows;
  std::int64_t h;
};

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) square_rows(SquaredRows<T> all) {
  using S = Wide<T>;
  S* parts = shared_array<S>();
  const T* row = all.rows + std::int64_t{blockIdx.x} * all.h;
  S sum = 0;
  for (std::int64_t i = threadIdx.x; i < all.h; i += kThreads) {
    const S value = widen(row[i]);
    sum += value * value;
  }
  sum = block_sum(sum, parts);
  if (threadIdx.x == 0) all.squares[blockIdx.x] = sum;
}

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

template <typename S>
__device__ S inverse_length(S squares) {
  return squares > 0 ? S{1} / sqrt(squares) : S{0};
}

// `M`: of magnitude and bias.
template <typename T, typename M>
struct WithMagnitude {
  static constexpr int kVector = kVectorOf<T>;
  StridedRows<T> y;
  StridedRows<const T> x;
  const M* magnitude;
  const Wide<T>* squares;
  const M* bias;  // or nullptr

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    using S = Wide<T>;
    auto value = load_wide<kCount>(&x.at(row, column));
    for (int i = 0; i < kCount; ++i) {
      const std::int64_t j = column + i;
      const S offset = bias != nullptr ? static_cast<S>(widen(bias[j])) : S{0};
      const S factor = static_cast<S>(widen(magnitude[j])) * inverse_length(squares[j]);
      value.at[i] = (value.at[i] - offset) * factor + offset;
    }
    store_rounded(&y.at(row, column), value);
  }
};

template <typename T, typename M>
struct MagnitudeTerm {
  static constexpr int kVector = kVectorOf<T>;
  static constexpr int kSums = 1;
  static constexpr int kRowsAtOnce = 4;
  using Sum = Wide<T>;
  StridedRows<const T> dy;
  StridedRows<const T> x;
  const Sum* squares;
  const M* bias;  // or nullptr

  template <int kCount>
  __device__ void add(std::int64_t row, std::int64_t column,
                      Numbers<Sum, kCount> (&sums)[kSums]) const {
    const auto gradient = load_wide<kCount>(&dy.at(row, column));
    const auto value = load_wide<kCount>(&x.at(row, column));
    for (int i = 0; i < kCount; ++i) {
      const std::int64_t j = column + i;
      const Sum offset = bias != nullptr ? static_cast<Sum>(widen(bias[j])) : Sum{0};
      sums[0].at[i] += gradient.at[i] * (value.at[i] - offset) * inverse_length(squares[j]);
    }
  }
};

}  // namespace

void execute(const RowSquares& call, const CallContext& context) {
  const std::int64_t f = call.rows.dim(0);
  if (f == 0) return;
  with_floating(call.rows.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch("launch of row squares", square_rows<T>,
           {.blocks = {static_cast<unsigned>(f), 1, 1}, .shared_bytes = kWarps * sizeof(Wide<T>)},
           SquaredRows<T>{.squares = pointer<Wide<T>>(call.squares),
                          .rows = pointer<const T>(call.rows),
                          .h = call.rows.dim(1)},
           context.stream);
  });
}

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

void execute(const MagnitudeForward& call, const CallContext& context) {
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_floating(call.magnitude.dtype(), [&]<typename M>(std::type_identity<M>) {
      launch_rows("launch of magnitude forward", rows_of(call.x, kVectorOf<T>, {call.y, call.x}),
                  WithMagnitude<T, M>{.y = strided_rows<T>(call.y),
                                      .x = strided_rows<const T>(call.x),
                                      .magnitude = pointer<const M>(call.magnitude),
                                      .squares = pointer<const Wide<T>>(call.squares),
                                      .bias = pointer<const M>(call.bias)},
                  context.stream);
    });
  });
}

void execute(const MagnitudeGradient& call, const CallContext& context) {
  const DType bias = call.bias.defined() ? call.bias.dtype() : call.x.dtype();
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_floating(bias, [&]<typename M>(std::type_identity<M>) {
      launch_column_sums("launch of magnitude gradient",
                         {rows_of(call.x, kVectorOf<T>, {call.dy, call.x}), call.dmagnitude},
                         MagnitudeTerm<T, M>{.dy = strided_rows<const T>(call.dy),
                                             .x = strided_rows<const T>(call.x),
                                             .squares = pointer<const Wide<T>>(call.squares),
                                             .bias = pointer<const M>(call.bias)},
                         context);
    });
  });
}

}  // namespace piton::cuda
