// Distillation: rows of logits are divided among threads; one thread sums over rows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/context.h"
#include "kernels/loss.h"

namespace piton::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const float* row_of(const Tensor& tensor, std::int64_t row) {
  return tensor.data<float>() + row * tensor.stride(0);
}

// max + log of the sum of exponentials, of statistics [ranks, n, 5] from column `first` on. A rank
// without columns has the maximum -infinity and the sum 0.
struct Whole {
  double maximum = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double lse() const { return maximum + std::log(sum); }
};

Whole whole_of(const Tensor& statistics, std::int64_t row, std::int64_t first) {
  Whole whole;
  const float* at = statistics.data<float>() + row * statistics.stride(1) + first;
  const std::int64_t step = statistics.stride(0);
  for (std::int64_t rank = 0; rank < statistics.dim(0); ++rank)
    whole.maximum = std::max<double>(whole.maximum, at[rank * step]);
  for (std::int64_t rank = 0; rank < statistics.dim(0); ++rank) {
    const float* one = at + rank * step;
    whole.sum += one[1] * std::exp(one[0] - whole.maximum);
  }
  return whole;
}

}  // namespace

void execute(CpuContext& context, const TeacherStatistics& call) {
  const auto inverse = static_cast<float>(1 / call.temperature);
  context.ranges(call.logits.dim(0), 1, [&](std::int64_t row, std::int64_t) {
    const float* x = row_of(call.logits, row);
    const float* y = row_of(call.teacher, row);
    float* statistics = call.statistics.data<float>() + row * call.statistics.stride(0);
    float model = -kInfinity;
    float teacher = -kInfinity;
    for (std::int64_t i = 0; i < call.valid; ++i) {
      model = std::max(model, x[i] * inverse);
      teacher = std::max(teacher, y[i] * inverse);
    }
    double sums[3] = {0, 0, 0};
    for (std::int64_t i = 0; i < call.valid; ++i) {
      const float share = std::exp(y[i] * inverse - teacher);
      sums[0] += std::exp(x[i] * inverse - model);
      sums[1] += share;
      sums[2] += share * ((y[i] - x[i]) * inverse);
    }
    statistics[0] = model;
    statistics[1] = static_cast<float>(sums[0]);
    statistics[2] = teacher;
    statistics[3] = static_cast<float>(sums[1]);
    statistics[4] = static_cast<float>(sums[2]);
  });
}

void execute(CpuContext&, const TeacherCombine& call) {
  const double factor = call.weight * call.temperature * call.temperature;
  const auto* labels = call.labels.data<std::int32_t>();
  const auto* mask = call.mask.data<float>();
  double total = *call.sum.data<double>();
  double apart = *call.divergence.data<double>();
  for (std::int64_t row = 0; row < call.loss.dim(0); ++row) {
    const Whole model = whole_of(call.statistics, row, 0);
    const Whole teacher = whole_of(call.statistics, row, 2);
    double difference = 0;
    for (std::int64_t rank = 0; rank < call.statistics.dim(0); ++rank) {
      const float* one = call.statistics.data<float>() + rank * call.statistics.stride(0) +
                         row * call.statistics.stride(1);
      difference += one[4] * std::exp(one[2] - teacher.maximum);
    }
    call.lse.data<float>()[2 * row] = static_cast<float>(model.lse());
    call.lse.data<float>()[2 * row + 1] = static_cast<float>(teacher.lse());
    float& loss = call.loss.data<float>()[row];
    if (labels[row] < 0) {
      loss = 0;
      continue;
    }
    const double distance = difference / teacher.sum - teacher.lse() + model.lse();
    loss = static_cast<float>((1 - call.weight) * loss + factor * distance);
    total += static_cast<double>(mask[row]) * loss;
    apart += static_cast<double>(mask[row]) * distance;
  }
  *call.sum.data<double>() = total;
  *call.divergence.data<double>() = apart;
}

void execute(CpuContext& context, const TeacherBackward& call) {
  const std::int64_t columns = call.logits.dim(1);
  const auto inverse = static_cast<float>(1 / call.temperature);
  const auto own = static_cast<float>(1 - call.weight);
  const auto apart = static_cast<float>(call.weight * call.temperature);
  const DType dtype = call.dlogits.dtype();
  context.ranges(call.logits.dim(0), 1, [&](std::int64_t row, std::int64_t) {
    const float* x = row_of(call.logits, row);
    const float* y = row_of(call.teacher, row);
    const float lse = call.lse.data<float>()[row];
    const float* warm = call.lse_at_temperature.data<float>() + 2 * row;
    const std::int32_t label = call.labels.data<std::int32_t>()[row];
    const std::int64_t here = label - call.vocabulary_begin;
    const float factor = call.mask.data<float>()[row] * *call.scale.data<float>();
    const std::int64_t valid = label < 0 ? 0 : call.valid;
    auto* values = reinterpret_cast<float*>(context.scratch.own(columns * 4));
    for (std::int64_t i = 0; i < valid; ++i) {
      const float onehot = i == here ? 1.0F : 0.0F;
      const float distance =
          std::exp(x[i] * inverse - warm[0]) - std::exp(y[i] * inverse - warm[1]);
      values[i] = (own * (std::exp(x[i] - lse) - onehot) + apart * distance) * factor;
    }
    std::fill(values + valid, values + columns, 0.0F);
    context.vector.convert(call.dlogits.raw() + row * call.dlogits.stride(0) * size_bytes(dtype),
                           type_of(dtype), values, Type::kF32, columns);
  });
}

}  // namespace piton::cpu
