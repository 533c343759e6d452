// Layer norm and RMS norm: one warp or block per row, which holds it in registers, and sums over
// columns for the gradients of gain and bias. The order of the sums depends only on sizes.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/norm/norm_gradient.cuh"

namespace piton::cuda {
namespace {

// X: of x and its gradient, T: of the rest.
template <typename X, typename T>
struct NormRows {
  T* y;
  Wide<T>* mean;  // nullptr: RMS norm
  Wide<T>* rstd;
  const X* x;
  const T* gain;
  const T* bias;           // or nullptr
  const Wide<T>* squares;  // of whole rows, of which x has a part; or nullptr
  Wide<T> width;           // of a whole row
  Wide<T> eps;
  Wide<T> gain_offset;
  std::int64_t n;
  std::int64_t h;
  bool vectors;
};

// The mean, then the squares of the differences from it: that avoids the cancellation of
// sum(x^2) - sum(x)^2.
template <typename Rows, typename X, typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) norm_rows(NormRows<X, T> rows) {
  wait_for_previous();
  let_next_start();
  using S = Wide<T>;
  constexpr int kCount = kVectorOf<X, T>;
  constexpr int kTeam = Rows::kTeam;
  using Team = RowTeam<kTeam, Rows::kHeld, kCount>;
  S* parts = shared_array<S>();
  const std::int64_t row = row_of_team<kTeam>();
  if (row >= rows.n) return;
  const Team team{rows.h, rows.vectors};
  const X* x = rows.x + row * rows.h;
  T* y = rows.y + row * rows.h;
  const S size = static_cast<S>(rows.h);
  Numbers<X, kCount> held[Rows::kHeld];
  team.load(x, 0, held);
  S mean = 0;
  if (rows.mean != nullptr) {
    S sum = 0;
    for (std::int64_t strip = 0; strip < rows.h; strip += Team::kStrip) {
      if (strip > 0) team.load(x, strip, held);
      team.each(strip, [&](int v, std::int64_t) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) sum += widen(held[v].at[i]);
      });
    }
    mean = team_sum<kTeam>(sum, parts) / size;
  }
  S squares = 0;
  for (std::int64_t strip = 0; strip < rows.h; strip += Team::kStrip) {
    if (!team.holds_all()) team.load(x, strip, held);
    team.each(strip, [&](int v, std::int64_t column) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const S difference = column + i < rows.h ? widen(held[v].at[i]) - mean : S{0};
        squares += difference * difference;
      }
    });
  }
  const S own = team_sum<kTeam>(squares, parts);
  const S sum_of_squares = rows.squares != nullptr ? rows.squares[row] : own;
  const S rstd = S{1} / sqrt(sum_of_squares / rows.width + rows.eps);
  for (std::int64_t strip = 0; strip < rows.h; strip += Team::kStrip) {
    if (!team.holds_all()) team.load(x, strip, held);
    team.each(strip, [&](int v, std::int64_t column) {
      const auto gain = load_part<kCount>(rows.gain, column, rows.h, rows.vectors);
      Numbers<S, kCount> result;
      Numbers<T, kCount> bias = {};
      if (rows.bias != nullptr) bias = load_part<kCount>(rows.bias, column, rows.h, rows.vectors);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const S offset = rows.bias != nullptr ? widen(bias.at[i]) : S{0};
        result.at[i] =
            fma((widen(held[v].at[i]) - mean) * rstd, widen(gain.at[i]) + rows.gain_offset, offset);
      }
      store_part(y, column, rows.h, rows.vectors, result);
    });
  }
  if (threadIdx.x % kTeam != 0) return;
  if (rows.mean != nullptr) rows.mean[row] = mean;
  rows.rstd[row] = rstd;
}

// The terms of the gradients of the gain, and with kBias of the bias.
template <typename X, typename T, bool kBias>
struct GainTerms {
  static constexpr int kVector = kVectorOf<X, T>;
  static constexpr int kSums = kBias ? 2 : 1;
  static constexpr int kRowsAtOnce = 4;
  using Sum = Wide<T>;
  const T* dy;
  const X* x;
  const Sum* mean;  // nullptr: RMS norm
  const Sum* rstd;
  std::int64_t h;

  template <int kCount>
  __device__ void add(std::int64_t row, std::int64_t column,
                      Numbers<Sum, kCount> (&sums)[kSums]) const {
    const auto value = load_wide<kCount>(x + row * h + column);
    const auto gradient = load_wide<kCount>(dy + row * h + column);
    const Sum center = mean != nullptr ? mean[row] : Sum{0};
    const Sum scale = rstd[row];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sums[0].at[i] += gradient.at[i] * ((value.at[i] - center) * scale);
      if (kBias) sums[kSums - 1].at[i] += gradient.at[i];
    }
  }
};

template <bool kBias, typename X, typename T>
void launch_gains(const NormBackward& call, const CallContext& context) {
  using Body = GainTerms<X, T, kBias>;
  launch_column_sums(
      "launch of norm backward, gain and bias",
      {rows_of(call.x, Body::kVector, {call.dy, call.x}), call.dgain, call.dbias},
      Body{pointer<const T>(call.dy), pointer<const X>(call.x), pointer<const Wide<T>>(call.mean),
           pointer<const Wide<T>>(call.rstd), call.x.dim(1)},
      context);
}

template <typename Rows, typename S>
LaunchShape shape_of_rows(std::int64_t n) {
  constexpr std::int64_t kRows = kThreads / Rows::kTeam;
  return {.blocks = {static_cast<unsigned>((n + kRows - 1) / kRows), 1, 1},
          .shared_bytes = kWarps * sizeof(S)};
}

// Whether rows of h can be read in vectors of `count`, in all of these tensors.
bool rows_fit(std::int64_t h, int count, std::initializer_list<Tensor> tensors) {
  return h % count == 0 && vectors_fit(count, tensors);
}

// Rows of one pass: enough blocks for a GPU, and few enough that their sums are little to add.
constexpr std::int64_t kPassBlocks = 512;
constexpr std::int64_t kLeastPassRows = 16;

template <typename Shape, int kSums, typename X, typename T>
void launch_pass(const NormBackward& call, const NormGradient<X, T>& rows,
                 const CallContext& context) {
  const cudaStream_t stream = context.stream;
  using S = Wide<T>;
  constexpr std::int64_t kWidth = std::int64_t{kThreads} * Shape::kHeld * kVectorOf<X, T>;
  const auto divided = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t least = std::max(kLeastPassRows, divided(rows.n, kPassBlocks));
  const std::int64_t chunk_rows = divided(least, Shape::kTeams) * Shape::kTeams;
  const std::int64_t chunks = divided(rows.n, chunk_rows);
  const Tensor& like = call.dgain.defined() ? call.dgain : call.dbias;
  const Tensor partial = scratch(like.dtype(), {chunks, kSums, rows.h}, context);
  const std::int64_t shared = 4 * kWarps + (Shape::kTeams > 1 ? kSums * kWidth : 0);
  launch("launch of norm backward", norm_gradient_pass<Shape, kSums, X, T>,
         {.blocks = {static_cast<unsigned>(chunks), 1, 1},
          .shared_bytes = static_cast<std::size_t>(shared) * sizeof(S)},
         NormPass<X, T>{rows, pointer<S>(partial), chunk_rows}, stream);
  launch("launch of norm backward, gain and bias", add_chunks<S>,
         {.blocks = {static_cast<unsigned>(divided(rows.h, kWarp)), kSums, 1},
          .shared_bytes = kThreads * sizeof(S)},
         Chunks<S>{.sums = {pointer<S>(call.dgain), pointer<S>(call.dbias)},
                   .partial = pointer<const S>(partial),
                   .chunks = chunks,
                   .columns = rows.h},
         stream);
}

// dx and the sums in one pass, of rows whose sums a team holds. False: these rows are longer.
template <int kSums, typename X, typename T>
bool launched_pass(const NormBackward& call, const NormGradient<X, T>& rows,
                   const CallContext& context) {
  const std::int64_t in_row = (rows.h + kVectorOf<X, T> - 1) / kVectorOf<X, T>;
  if (in_row <= kWarp) {
    launch_pass<PassShape<kWarp, 1>, kSums>(call, rows, context);
  } else if (in_row <= kThreads / 2) {
    launch_pass<PassShape<kThreads / 2, 1>, kSums>(call, rows, context);
  } else if (in_row <= kThreads) {
    launch_pass<PassShape<kThreads, 1>, kSums>(call, rows, context);
  } else if (in_row <= 2 * kThreads) {
    launch_pass<PassShape<kThreads, 2>, kSums>(call, rows, context);
  } else {
    return false;
  }
  return true;
}

}  // namespace

void execute(const NormForward& call, const CallContext& context) {
  const std::int64_t n = call.x.dim(0);
  const std::int64_t h = call.x.dim(1);
  if (n == 0) return;
  with_stream(call.x.dtype(), call.y.dtype(),
              [&]<typename X, typename T>(std::type_identity<X>, std::type_identity<T>) {
                using S = Wide<T>;
                constexpr int kCount = kVectorOf<X, T>;
                with_team(h, kCount, [&]<typename Rows>(Rows) {
                  LaunchShape shape = shape_of_rows<Rows, S>(n);
                  shape.early = true;
                  launch(
                      "launch of norm forward", norm_rows<Rows, X, T>, shape,
                      NormRows<X, T>{
                          .y = pointer<T>(call.y),
                          .mean = pointer<S>(call.mean),
                          .rstd = pointer<S>(call.rstd),
                          .x = pointer<const X>(call.x),
                          .gain = pointer<const T>(call.gain),
                          .bias = pointer<const T>(call.bias),
                          .squares = pointer<const S>(call.squares),
                          .width = static_cast<S>(call.squares.defined() ? call.width : h),
                          .eps = static_cast<S>(call.eps),
                          .gain_offset = static_cast<S>(call.gain_offset),
                          .n = n,
                          .h = h,
                          .vectors = rows_fit(h, kCount, {call.y, call.x, call.gain, call.bias})},
                      context.stream);
                });
              });
}

void execute(const NormBackward& call, const CallContext& context) {
  const std::int64_t n = call.x.dim(0);
  const std::int64_t h = call.x.dim(1);
  if (n == 0) return;
  with_stream(
      call.x.dtype(), call.dy.dtype(),
      [&]<typename X, typename T>(std::type_identity<X>, std::type_identity<T>) {
        using S = Wide<T>;
        constexpr int kCount = kVectorOf<X, T>;
        const NormGradient<X, T> gradient{
            .dx = pointer<X>(call.dx),
            .dy = pointer<const T>(call.dy),
            .dresidual = pointer<const X>(call.dresidual),
            .x = pointer<const X>(call.x),
            .gain = pointer<const T>(call.gain),
            .mean = pointer<const S>(call.mean),
            .rstd = pointer<const S>(call.rstd),
            .products = pointer<const S>(call.products),
            .width = static_cast<S>(call.products.defined() ? call.width : h),
            .gain_offset = static_cast<S>(call.gain_offset),
            .n = n,
            .h = h,
            .vectors = rows_fit(h, kCount, {call.dx, call.dy, call.dresidual, call.x, call.gain})};
        if (call.dbias.defined()) {
          if (launched_pass<2>(call, gradient, context)) return;
          launch_gains<true, X, T>(call, context);
        } else if (call.dgain.defined()) {
          if (launched_pass<1>(call, gradient, context)) return;
          launch_gains<false, X, T>(call, context);
        }
        with_team(h, kCount, [&]<typename Rows>(Rows) {
          launch("launch of norm backward", norm_gradient_rows<Rows, X, T>,
                 shape_of_rows<Rows, S>(n), gradient, context.stream);
        });
      });
}

}  // namespace piton::cuda
