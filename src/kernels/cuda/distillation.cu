// The divergence from a teacher's distribution (kernels/loss.h). One block per row for the
// statistics; one block in all for the sums, which are in row order.
#include <cmath>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

namespace piton::cuda {
namespace {

template <typename S>
struct TeacherRows {
  S* statistics;  // [n, 5]
  const S* logits;
  const S* teacher;
  std::int64_t columns;
  std::int64_t valid;
  S temperature;
  S lowest;  // -infinity
};

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) teacher_rows(TeacherRows<S> rows) {
  S* parts = shared_array<S>();
  const std::int64_t row = blockIdx.x;
  const S* x = rows.logits + row * rows.columns;
  const S* y = rows.teacher + row * rows.columns;
  S model = rows.lowest;
  S teacher = rows.lowest;
  for (std::int64_t i = threadIdx.x; i < rows.valid; i += kThreads) {
    model = fmax(model, x[i] / rows.temperature);
    teacher = fmax(teacher, y[i] / rows.temperature);
  }
  model = reduced(model, parts, Largest{});
  teacher = reduced(teacher, parts, Largest{});
  S model_sum = 0;
  S teacher_sum = 0;
  S apart = 0;
  for (std::int64_t i = threadIdx.x; i < rows.valid; i += kThreads) {
    const S a = x[i] / rows.temperature;
    const S b = y[i] / rows.temperature;
    const S share = exp(b - teacher);
    model_sum += exp(a - model);
    teacher_sum += share;
    apart += share * (b - a);
  }
  model_sum = block_sum(model_sum, parts);
  teacher_sum = block_sum(teacher_sum, parts);
  apart = block_sum(apart, parts);
  if (threadIdx.x != 0) return;
  S* statistics = rows.statistics + 5 * row;
  statistics[0] = model;
  statistics[1] = model_sum;
  statistics[2] = teacher;
  statistics[3] = teacher_sum;
  statistics[4] = apart;
}

template <typename S>
struct CombinedRows {
  S* loss;
  S* lse;  // [n, 2]
  double* sum;
  double* divergence;
  const S* statistics;  // [ranks, n, 5]
  const std::int32_t* labels;
  const float* mask;
  std::int64_t ranks;
  std::int64_t n;
  S weight;
  S factor;  // w T^2
  S lowest;

  // Writes the row, and returns its divergence.
  __device__ S combine(std::int64_t row) const {
    S sums[2] = {0, 0};
    S apart = 0;
    for (int which = 0; which < 2; ++which) {
      S largest = lowest;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        largest = fmax(largest, statistics[5 * (rank * n + row) + 2 * which]);
      }
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const S* one = statistics + 5 * (rank * n + row);
        const S share = exp(one[2 * which] - largest);
        sums[which] += one[2 * which + 1] * share;
        if (which == 1) apart += one[4] * share;
      }
      lse[2 * row + which] = largest + log(sums[which]);
    }
    if (labels[row] < 0) {
      loss[row] = 0;
      return 0;
    }
    const S distance = apart / sums[1] - lse[2 * row + 1] + lse[2 * row];
    loss[row] = (S{1} - weight) * loss[row] + factor * distance;
    return distance;
  }
};

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) combine_teacher(CombinedRows<S> rows) {
  double* losses = shared_array<double>();  // [kThreads]
  double* distances = losses + kThreads;    // [kThreads]
  double sum = *rows.sum;
  double divergence = *rows.divergence;
  for (std::int64_t begin = 0; begin < rows.n; begin += kThreads) {
    const std::int64_t row = begin + threadIdx.x;
    losses[threadIdx.x] = 0;
    distances[threadIdx.x] = 0;
    if (row < rows.n) {
      const double mask = static_cast<double>(rows.mask[row]);
      distances[threadIdx.x] = mask * static_cast<double>(rows.combine(row));
      losses[threadIdx.x] = mask * static_cast<double>(rows.loss[row]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (std::int64_t i = 0; i < kThreads && begin + i < rows.n; ++i) {
        sum += losses[i];
        divergence += distances[i];
      }
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  *rows.sum = sum;
  *rows.divergence = divergence;
}

template <typename T, typename S>
struct TeacherGradient {
  T* dlogits;  // may be logits
  const S* logits;
  const S* teacher;
  const S* lse;
  const S* warm;  // [n, 2]
  const std::int32_t* labels;
  const float* mask;
  const S* scale;
  std::int64_t columns;
  std::int64_t begin;
  std::int64_t valid;
  S temperature;
  S weight;

  __device__ void operator()(std::int64_t index) const {
    const std::int64_t row = index / columns;
    const std::int64_t i = index % columns;
    S gradient = 0;
    if (i < valid && labels[row] >= 0) {
      const S onehot = i == labels[row] - begin ? S{1} : S{0};
      const S own = exp(logits[index] - lse[row]) - onehot;
      const S apart = exp(logits[index] / temperature - warm[2 * row]) -
                      exp(teacher[index] / temperature - warm[2 * row + 1]);
      gradient = ((S{1} - weight) * own + weight * temperature * apart) *
                 static_cast<S>(mask[row]) * *scale;
    }
    dlogits[index] = narrow<T>(gradient);
  }
};

}  // namespace

void execute(const TeacherStatistics& call, const CallContext& context) {
  const std::int64_t n = call.logits.dim(0);
  if (n == 0) return;
  with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch("launch of teacher statistics", teacher_rows<S>,
           {.blocks = {static_cast<unsigned>(n), 1, 1}, .shared_bytes = kWarps * sizeof(S)},
           TeacherRows<S>{.statistics = pointer<S>(call.statistics),
                          .logits = pointer<const S>(call.logits),
                          .teacher = pointer<const S>(call.teacher),
                          .columns = call.logits.dim(1),
                          .valid = call.valid,
                          .temperature = static_cast<S>(call.temperature),
                          .lowest = kLowest<S>},
           context.stream);
  });
}

void execute(const TeacherCombine& call, const CallContext& context) {
  const std::int64_t n = call.labels.dim(0);
  if (n == 0) return;
  with_sums(call.statistics.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch(
        "launch of teacher combine", combine_teacher<S>,
        {.blocks = {1, 1, 1}, .shared_bytes = 2 * kThreads * sizeof(double)},
        CombinedRows<S>{.loss = pointer<S>(call.loss),
                        .lse = pointer<S>(call.lse),
                        .sum = pointer<double>(call.sum),
                        .divergence = pointer<double>(call.divergence),
                        .statistics = pointer<const S>(call.statistics),
                        .labels = pointer<const std::int32_t>(call.labels),
                        .mask = pointer<const float>(call.mask),
                        .ranks = call.statistics.dim(0),
                        .n = n,
                        .weight = static_cast<S>(call.weight),
                        .factor = static_cast<S>(call.weight * call.temperature * call.temperature),
                        .lowest = kLowest<S>},
        context.stream);
  });
}

void execute(const TeacherBackward& call, const CallContext& context) {
  with_floating(call.dlogits.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
      launch_elements("launch of teacher backward", call.logits.elements(),
                      TeacherGradient<T, S>{.dlogits = pointer<T>(call.dlogits),
                                            .logits = pointer<const S>(call.logits),
                                            .teacher = pointer<const S>(call.teacher),
                                            .lse = pointer<const S>(call.lse),
                                            .warm = pointer<const S>(call.lse_at_temperature),
                                            .labels = pointer<const std::int32_t>(call.labels),
                                            .mask = pointer<const float>(call.mask),
                                            .scale = pointer<const S>(call.scale),
                                            .columns = call.logits.dim(1),
                                            .begin = call.vocabulary_begin,
                                            .valid = call.valid,
                                            .temperature = static_cast<S>(call.temperature),
                                            .weight = static_cast<S>(call.weight)},
                      context.stream);
    });
  });
}

}  // namespace piton::cuda
