// Cross entropy over a vocabulary that may be split. One block per row for the statistics; a thread
// per row for the loss, whose sum is that of blocks of rows.
#include <cmath>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/held_row.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/scratch.h"

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
  bool vectors;
};

// The largest of some numbers, and the sum of the exponentials of their distances from it.
template <typename S>
struct Exponentials {
  S largest;
  S sum = 0;

  // No distance from -infinity is taken: of numbers that are all -infinity the sum is 0.
  static __device__ S share(S x, S largest, S lowest) {
    return exp(x - (largest == lowest ? S{0} : largest));
  }
};

// Each thread goes over its part of the row once. When it meets a larger number, it multiplies its
// sum by the exponential of the distance.
template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) statistics_rows(StatisticsRows<S> rows) {
  constexpr int kCount = kVectorOf<S>;
  using Team = RowTeam<kThreads, 4, kCount>;
  using Sums = Exponentials<S>;
  S* parts = shared_array<S>();
  const std::int64_t row = blockIdx.x;
  const S* x = rows.logits + row * rows.columns;
  const Team team{rows.columns, rows.vectors};
  Sums mine{.largest = rows.lowest};
  for (std::int64_t strip = 0; strip < rows.valid; strip += Team::kStrip) {
    Numbers<S, kCount> held[4];
    team.load(x, strip, held);
    S largest = mine.largest;
    team.each(strip, [&](int v, std::int64_t column) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (column + i < rows.valid) largest = fmax(largest, held[v].at[i]);
      }
    });
    if (largest > mine.largest) mine.sum *= Sums::share(mine.largest, largest, rows.lowest);
    mine.largest = largest;
    team.each(strip, [&](int v, std::int64_t column) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (column + i < rows.valid) mine.sum += Sums::share(held[v].at[i], largest, rows.lowest);
      }
    });
  }
  const S largest = reduced(mine.largest, parts, Largest{});
  const S sum = block_sum(mine.sum * Sums::share(mine.largest, largest, rows.lowest), parts);
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
  double* sums;         // of each block
  const S* statistics;  // [ranks, n, 3]
  const std::int32_t* labels;
  const float* mask;
  std::int64_t ranks;
  std::int64_t n;
  S lowest;
};

// A thread has a row.
template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) combine_rows(CombineRows<S> rows) {
  double* parts = shared_array<double>();
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
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
  const double sum = block_sum(term, parts);
  if (threadIdx.x == 0) rows.sums[blockIdx.x] = sum;
}

template <typename S>
struct SquaredLossRows {
  S* loss;
  float* weights;
  double* sums;  // of each block
  const float* targets;
  const float* mask;
  std::int64_t n;
};

// A thread has a row.
template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) squared_loss_rows(SquaredLossRows<S> rows) {
  double* parts = shared_array<double>();
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  double term = 0;
  if (row < rows.n) {
    const S difference = rows.loss[row] - static_cast<S>(rows.targets[row]);
    const S loss = difference * difference;
    rows.loss[row] = loss;
    rows.weights[row] = static_cast<float>(2 * difference * static_cast<S>(rows.mask[row]));
    term = static_cast<double>(rows.mask[row]) * static_cast<double>(loss);
  }
  const double sum = block_sum(term, parts);
  if (threadIdx.x == 0) rows.sums[blockIdx.x] = sum;
}

template <typename S>
struct BinaryRows {
  S* statistics;
  const S* logits;
  const std::int32_t* labels;
  const std::uint8_t* sets;  // [k, count]
  std::int64_t columns;
  std::int64_t count;  // labels of all ranks
  std::int64_t begin;
  std::int64_t valid;
};

// A block has a row.
template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) binary_rows(BinaryRows<S> rows) {
  S* parts = shared_array<S>();
  const std::int64_t row = blockIdx.x;
  const S* x = rows.logits + row * rows.columns;
  const std::int32_t label = rows.labels[row];
  S mine = 0;
  if (label >= 0) {
    const std::uint8_t* set = rows.sets + std::int64_t{label} * rows.count + rows.begin;
    for (std::int64_t i = threadIdx.x; i < rows.valid; i += kThreads) {
      const S margin = set[i] != 0 ? x[i] : -x[i];
      mine += fmin(margin, S{0}) - log1p(exp(-fabs(margin)));
    }
  }
  const S sum = block_sum(mine, parts);
  if (threadIdx.x != 0) return;
  rows.statistics[3 * row] = S{0};
  rows.statistics[3 * row + 1] = rows.begin == 0 ? S{1} : S{0};
  rows.statistics[3 * row + 2] = sum / static_cast<S>(rows.count);
}

struct AddedTerms {
  double* sum;
  const double* terms;
  std::int64_t n;
};

// *sum += all terms: one block.
__global__ void __launch_bounds__(kThreads, kBlocks) add_terms(AddedTerms all) {
  const double sum = sum_in_block(all.terms, all.n, shared_array<double>());
  if (threadIdx.x == 0) *all.sum += sum;
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

template <typename T, typename S>
struct BinaryLossGradient {
  static constexpr int kVector = kVectorOf<T, S>;
  T* dlogits;  // may be logits
  const S* logits;
  const std::int32_t* labels;
  const std::uint8_t* sets;  // [k, count]
  const float* mask;
  const S* scale;
  std::int64_t columns;
  std::int64_t count;  // labels of all ranks
  std::int64_t begin;
  std::int64_t valid;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    auto gradient = load<kCount>(logits + row * columns + column);
    const std::int32_t label = labels[row];
    const S factor = static_cast<S>(mask[row]) * *scale / static_cast<S>(count);
    const std::int64_t first = label < 0 ? 0 : std::int64_t{label} * count + begin;
    for (int i = 0; i < kCount; ++i) {
      const bool counts = column + i < valid && label >= 0;
      const S wanted = counts ? static_cast<S>(sets[first + column + i]) : S{0};
      const S share = S{1} / (S{1} + exp(-gradient.at[i]));
      gradient.at[i] = counts ? (share - wanted) * factor : S{0};
    }
    store_rounded(dlogits + row * columns + column, gradient);
  }
};

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
                             .lowest = kLowest<S>,
                             .vectors = call.logits.dim(1) % kVectorOf<S> == 0 &&
                                        vectors_fit(kVectorOf<S>, {call.logits})},
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
  const unsigned blocks = blocks_for(n, kThreads);
  PITON_ASSERT(std::int64_t{blocks} * kThreads >= n, "cuda: the loss of {} rows", n);
  const Tensor sums = scratch(DType::kF64, {blocks}, context);
  with_sums(call.statistics.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch("launch of loss combine", combine_rows<S>,
           {.blocks = {blocks, 1, 1}, .shared_bytes = kWarps * sizeof(double)},
           CombineRows<S>{.loss = pointer<S>(call.loss),
                          .lse = pointer<S>(call.lse),
                          .sums = pointer<double>(sums),
                          .statistics = pointer<const S>(call.statistics),
                          .labels = pointer<const std::int32_t>(call.labels),
                          .mask = pointer<const float>(call.mask),
                          .ranks = call.statistics.dim(0),
                          .n = n,
                          .lowest = kLowest<S>},
           context.stream);
  });
  launch("launch of loss combine, sum", add_terms,
         {.blocks = {1, 1, 1}, .shared_bytes = kWarps * sizeof(double)},
         AddedTerms{pointer<double>(call.sum), pointer<const double>(sums), blocks},
         context.stream);
}

void execute(const SquaredLoss& call, const CallContext& context) {
  const std::int64_t n = call.loss.dim(0);
  if (n == 0) return;
  const unsigned blocks = blocks_for(n, kThreads);
  PITON_ASSERT(std::int64_t{blocks} * kThreads >= n, "cuda: the squared loss of {} rows", n);
  const Tensor sums = scratch(DType::kF64, {blocks}, context);
  with_sums(call.loss.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch("launch of squared loss", squared_loss_rows<S>,
           {.blocks = {blocks, 1, 1}, .shared_bytes = kWarps * sizeof(double)},
           SquaredLossRows<S>{.loss = pointer<S>(call.loss),
                              .weights = pointer<float>(call.weights),
                              .sums = pointer<double>(sums),
                              .targets = pointer<const float>(call.targets),
                              .mask = pointer<const float>(call.mask),
                              .n = n},
           context.stream);
  });
  launch("launch of squared loss, sum", add_terms,
         {.blocks = {1, 1, 1}, .shared_bytes = kWarps * sizeof(double)},
         AddedTerms{pointer<double>(call.sum), pointer<const double>(sums), blocks},
         context.stream);
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

void execute(const BinaryLossStatistics& call, const CallContext& context) {
  const std::int64_t n = call.logits.dim(0);
  if (n == 0) return;
  with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch("launch of binary loss statistics", binary_rows<S>,
           {.blocks = {static_cast<unsigned>(n), 1, 1}, .shared_bytes = kWarps * sizeof(S)},
           BinaryRows<S>{.statistics = pointer<S>(call.statistics),
                         .logits = pointer<const S>(call.logits),
                         .labels = pointer<const std::int32_t>(call.labels),
                         .sets = pointer<const std::uint8_t>(call.sets),
                         .columns = call.logits.dim(1),
                         .count = call.sets.dim(1),
                         .begin = call.vocabulary_begin,
                         .valid = call.valid},
           context.stream);
  });
}

void execute(const BinaryLossBackward& call, const CallContext& context) {
  with_floating(call.dlogits.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
      using Body = BinaryLossGradient<T, S>;
      launch_rows("launch of binary loss backward",
                  rows_of(call.logits, Body::kVector, {call.dlogits, call.logits}),
                  Body{.dlogits = pointer<T>(call.dlogits),
                       .logits = pointer<const S>(call.logits),
                       .labels = pointer<const std::int32_t>(call.labels),
                       .sets = pointer<const std::uint8_t>(call.sets),
                       .mask = pointer<const float>(call.mask),
                       .scale = pointer<const S>(call.scale),
                       .columns = call.logits.dim(1),
                       .count = call.sets.dim(1),
                       .begin = call.vocabulary_begin,
                       .valid = call.valid},
                  context.stream);
    });
  });
}

}  // namespace piton::cuda
