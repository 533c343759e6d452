// Cross entropy over a vocabulary that may be split. One block per row for the statistics; one
// block in all for the sum of losses, which is in row order.
#include <cmath>
#include <limits>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"

namespace piton::cuda {
namespace {

template <typename S>
struct StatisticsRows {
  S* statistics;
  const S* logits;
  const std::int32_t* labels;
  std::int64_t columns;
  std::int64_t begin;
  std::int64_t valid;
  S lowest;  // -infinity
};

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) statistics_rows(StatisticsRows<S> rows) {
  S* parts = shared_array<S>();
  const std::int64_t row = blockIdx.x;
  const S* x = rows.logits + row * rows.columns;
  S largest = rows.lowest;
  for (std::int64_t i = threadIdx.x; i < rows.valid; i += kThreads) largest = fmax(largest, x[i]);
  largest = reduced(largest, parts, Largest{});
  S sum = 0;
  for (std::int64_t i = threadIdx.x; i < rows.valid; i += kThreads) sum += exp(x[i] - largest);
  sum = block_sum(sum, parts);
  if (threadIdx.x != 0) return;
  const std::int64_t label = rows.labels[row] - rows.begin;
  const bool here = rows.labels[row] >= 0 && label >= 0 && label < rows.valid;
  rows.statistics[3 * row] = largest;
  rows.statistics[3 * row + 1] = sum;
  rows.statistics[3 * row + 2] = here ? x[label] : S{0};
}

template <typename S>
struct LargestRows {
  std::int32_t* ids;
  const S* logits;
  std::int64_t columns;
  std::int64_t begin;
  std::int64_t valid;
};

// Each thread has the lowest of its own columns with their largest logit; the first thread takes
// the best of all, the lower column on ties.
template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) largest_rows(LargestRows<S> rows) {
  std::int64_t* places = shared_array<std::int64_t>();  // [kThreads]
  const std::int64_t row = blockIdx.x;
  const S* x = rows.logits + row * rows.columns;
  std::int64_t best = threadIdx.x;
  for (std::int64_t i = best + kThreads; i < rows.valid; i += kThreads) {
    if (x[i] > x[best]) best = i;
  }
  places[threadIdx.x] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  best = 0;
  for (std::int64_t i = 1; i < kThreads && i < rows.valid; ++i) {
    const std::int64_t place = places[i];
    if (i == 1) best = places[0];
    if (x[place] > x[best] || (x[place] == x[best] && place < best)) best = place;
  }
  rows.ids[row] = static_cast<std::int32_t>(rows.begin + best);
}

template <typename S>
struct CombineRows {
  S* loss;
  S* lse;
  double* sum;
  const S* statistics;  // [ranks, n, 3]
  const std::int32_t* labels;
  const float* mask;
  std::int64_t ranks;
  std::int64_t n;
  S lowest;
};

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) combine_rows(CombineRows<S> rows) {
  double* terms = shared_array<double>();  // [kThreads]
  double sum = *rows.sum;
  for (std::int64_t begin = 0; begin < rows.n; begin += kThreads) {
    const std::int64_t row = begin + threadIdx.x;
    double term = 0;
    if (row < rows.n) {
      S largest = rows.lowest;
      for (std::int64_t rank = 0; rank < rows.ranks; ++rank) {
        largest = fmax(largest, rows.statistics[3 * (rank * rows.n + row)]);
      }
      S exponentials = 0;
      S label_logit = 0;
      for (std::int64_t rank = 0; rank < rows.ranks; ++rank) {
        const S* one = rows.statistics + 3 * (rank * rows.n + row);
        exponentials += one[1] * exp(one[0] - largest);
        label_logit += one[2];
      }
      const S lse = largest + log(exponentials);
      const S loss = rows.labels[row] < 0 ? S{0} : lse - label_logit;
      rows.lse[row] = lse;
      rows.loss[row] = loss;
      term = static_cast<double>(rows.mask[row]) * static_cast<double>(loss);
    }
    terms[threadIdx.x] = term;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (std::int64_t i = 0; i < kThreads && begin + i < rows.n; ++i) sum += terms[i];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *rows.sum = sum;
}

template <typename T, typename S>
struct LossGradient {
  static constexpr int kVector = kVectorOf<T, S>;
  T* dlogits;  // may be logits
  const S* logits;
  const S* lse;
  const std::int32_t* labels;
  const float* mask;
  const S* scale;
  std::int64_t columns;
  std::int64_t begin;
  std::int64_t valid;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    auto gradient = load<kCount>(logits + row * columns + column);
    const S center = lse[row];
    const S factor = static_cast<S>(mask[row]);
    const S all = *scale;
    const std::int32_t label = labels[row];
    for (int i = 0; i < kCount; ++i) {
      const S onehot = column + i == label - begin ? S{1} : S{0};
      const bool counts = column + i < valid && label >= 0;
      gradient.at[i] = counts ? (exp(gradient.at[i] - center) - onehot) * factor * all : S{0};
    }
    store_rounded(dlogits + row * columns + column, gradient);
  }
};

template <typename S>
constexpr S kLowest = -std::numeric_limits<S>::infinity();

}  // namespace

void execute(const LossStatistics& call, const CallContext& context) {
  const std::int64_t n = call.logits.dim(0);
  if (n == 0) return;
  with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch("launch of loss statistics", statistics_rows<S>,
           {.blocks = {static_cast<unsigned>(n), 1, 1}, .shared_bytes = kWarps * sizeof(S)},
           StatisticsRows<S>{.statistics = pointer<S>(call.statistics),
                             .logits = pointer<const S>(call.logits),
                             .labels = pointer<const std::int32_t>(call.labels),
                             .columns = call.logits.dim(1),
                             .begin = call.vocabulary_begin,
                             .valid = call.valid,
                             .lowest = kLowest<S>},
           context.stream);
  });
}

void execute(const LargestLogits& call, const CallContext& context) {
  const std::int64_t n = call.logits.dim(0);
  if (n == 0) return;
  with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch("launch of largest logits", largest_rows<S>,
           {.blocks = {static_cast<unsigned>(n), 1, 1},
            .shared_bytes = kThreads * sizeof(std::int64_t)},
           LargestRows<S>{.ids = pointer<std::int32_t>(call.ids),
                          .logits = pointer<const S>(call.logits),
                          .columns = call.logits.dim(1),
                          .begin = call.vocabulary_begin,
                          .valid = call.valid},
           context.stream);
  });
}

void execute(const LossCombine& call, const CallContext& context) {
  const std::int64_t n = call.labels.dim(0);
  if (n == 0) return;
  with_sums(call.statistics.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch("launch of loss combine", combine_rows<S>,
           {.blocks = {1, 1, 1}, .shared_bytes = kThreads * sizeof(double)},
           CombineRows<S>{.loss = pointer<S>(call.loss),
                          .lse = pointer<S>(call.lse),
                          .sum = pointer<double>(call.sum),
                          .statistics = pointer<const S>(call.statistics),
                          .labels = pointer<const std::int32_t>(call.labels),
                          .mask = pointer<const float>(call.mask),
                          .ranks = call.statistics.dim(0),
                          .n = n,
                          .lowest = kLowest<S>},
           context.stream);
  });
}

void execute(const LossBackward& call, const CallContext& context) {
  with_floating(call.dlogits.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
      using Body = LossGradient<T, S>;
      launch_rows("launch of loss backward",
                  rows_of(call.logits, Body::kVector, {call.dlogits, call.logits}),
                  Body{.dlogits = pointer<T>(call.dlogits),
                       .logits = pointer<const S>(call.logits),
                       .lse = pointer<const S>(call.lse),
                       .labels = pointer<const std::int32_t>(call.labels),
                       .mask = pointer<const float>(call.mask),
                       .scale = pointer<const S>(call.scale),
                       .columns = call.logits.dim(1),
                       .begin = call.vocabulary_begin,
                       .valid = call.valid},
                  context.stream);
    });
  });
}

}  // namespace piton::cuda
