// Cross entropy: rows of logits are divided among threads; one thread sums over rows.
#include "kernels/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

// The first place of the largest value; 0 if none is a number. Eight running maxima are vectorized.
std::int64_t place_of_largest(const float* x, std::int64_t n) {
  constexpr std::int64_t kLanes = 8;
  float largest[kLanes];
  std::fill_n(largest, kLanes, -std::numeric_limits<float>::infinity());
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      largest[lane] = x[i + lane] > largest[lane] ? x[i + lane] : largest[lane];
  }
  for (; i < n; ++i) largest[0] = x[i] > largest[0] ? x[i] : largest[0];
  const float most = *std::max_element(largest, largest + kLanes);
  const float* found = std::find(x, x + n, most);
  return found != x + n ? found - x : 0;
}

void put(std::byte* at, DType dtype, float value) {
  switch (dtype) {
    case DType::kBF16:
      *reinterpret_cast<BFloat16*>(at) = to_bfloat16(value);
      return;
    case DType::kF16:
      *reinterpret_cast<Float16*>(at) = to_float16(value);
      return;
    default:
      *reinterpret_cast<float*>(at) = value;
      return;
  }
}

}  // namespace

void execute(CpuContext& context, const LossStatistics& call) {
  const auto* labels = call.labels.data<std::int32_t>();
  context.ranges(call.logits.dim(0), 1, [&](std::int64_t row, std::int64_t) {
    const float* logits = call.logits.data<float>() + row * call.logits.stride(0);
    float* statistics = call.statistics.data<float>() + row * call.statistics.stride(0);
    context.vector.loss_statistics(logits, call.valid, &statistics[0], &statistics[1]);
    const std::int64_t label = labels[row] - call.vocabulary_begin;
    statistics[2] = labels[row] >= 0 && label >= 0 && label < call.valid ? logits[label] : 0.0F;
  });
}

void execute(CpuContext& context, const LargestLogits& call) {
  context.ranges(call.logits.dim(0), 1, [&](std::int64_t row, std::int64_t) {
    const float* logits = call.logits.data<float>() + row * call.logits.stride(0);
    call.ids.data<std::int32_t>()[row] =
        static_cast<std::int32_t>(call.vocabulary_begin + place_of_largest(logits, call.valid));
  });
}

void execute(CpuContext&, const LossCombine& call) {
  const std::int64_t ranks = call.statistics.dim(0);
  const auto* labels = call.labels.data<std::int32_t>();
  const auto* mask = call.mask.data<float>();
  const auto* statistics = call.statistics.data<float>();
  double total = *call.sum.data<double>();
  for (std::int64_t row = 0; row < call.loss.dim(0); ++row) {
    const float* first = statistics + row * call.statistics.stride(1);
    double maximum = -std::numeric_limits<double>::infinity();
    double target = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const float* one = first + rank * call.statistics.stride(0);
      if (one[0] > maximum) maximum = one[0];
      target += one[2];
    }
    double sum = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const float* one = first + rank * call.statistics.stride(0);
      if (one[1] != 0) sum += one[1] * std::exp(one[0] - maximum);  // a rank without columns has 0
    }
    const double lse = maximum + std::log(sum);
    const auto loss = static_cast<float>(labels[row] < 0 ? 0 : lse - target);
    call.lse.data<float>()[row] = static_cast<float>(lse);
    call.loss.data<float>()[row] = loss;
    total += static_cast<double>(mask[row]) * loss;
  }
  *call.sum.data<double>() = total;
}

void execute(CpuContext&, const SquaredLoss& call) {
  const auto* targets = call.targets.data<float>();
  const auto* mask = call.mask.data<float>();
  auto* losses = call.loss.data<float>();
  double total = *call.sum.data<double>();
  for (std::int64_t row = 0; row < call.loss.dim(0); ++row) {
    const float difference = losses[row] - targets[row];
    losses[row] = difference * difference;
    call.weights.data<float>()[row] = 2 * difference * mask[row];
    total += static_cast<double>(mask[row]) * losses[row];
  }
  *call.sum.data<double>() = total;
}

void execute(CpuContext& context, const LossBackward& call) {
  const auto* labels = call.labels.data<std::int32_t>();
  const float scale = *call.scale.data<float>();
  const DType dtype = call.dlogits.dtype();
  const std::int64_t width = size_bytes(dtype);
  context.ranges(call.logits.dim(0), 1, [&](std::int64_t row, std::int64_t) {
    const float* logits = call.logits.data<float>() + row * call.logits.stride(0);
    std::byte* dlogits = call.dlogits.raw() + row * call.dlogits.stride(0) * width;
    const float lse = call.lse.data<float>()[row];
    const bool labeled = labels[row] >= 0;
    const std::int64_t label = labels[row] - call.vocabulary_begin;
    const bool here = labeled && label >= 0 && label < call.valid;
    const float factor = call.mask.data<float>()[row] * scale;
    const float target = here ? logits[label] : 0.0F;  // dlogits may be the memory of logits
    // A row without a label is 0 whatever its logits are.
    context.vector.loss_gradient(dlogits, type_of(dtype), logits, call.logits.dim(1),
                                 labeled ? call.valid : 0, lse, factor);
    if (here) put(dlogits + label * width, dtype, (std::exp(target - lse) - 1.0F) * factor);
  });
}

void execute(CpuContext& context, const BinaryLossStatistics& call) {
  const auto* labels = call.labels.data<std::int32_t>();
  const std::int64_t count = call.sets.dim(1);
  context.ranges(call.logits.dim(0), 1, [&](std::int64_t row, std::int64_t) {
    const float* logits = call.logits.data<float>() + row * call.logits.stride(0);
    float* statistics = call.statistics.data<float>() + row * call.statistics.stride(0);
    double sum = 0;
    if (labels[row] >= 0) {
      const auto* set =
          call.sets.data<std::uint8_t>() + labels[row] * count + call.vocabulary_begin;
      for (std::int64_t i = 0; i < call.valid; ++i) {
        const double margin = set[i] != 0 ? logits[i] : -logits[i];
        sum += std::fmin(margin, 0.0) - std::log1p(std::exp(-std::fabs(margin)));
      }
    }
    statistics[0] = 0;
    statistics[1] = call.vocabulary_begin == 0 ? 1.0F : 0.0F;
    statistics[2] = static_cast<float>(sum / static_cast<double>(count));
  });
}

void execute(CpuContext& context, const BinaryLossBackward& call) {
  const auto* labels = call.labels.data<std::int32_t>();
  const std::int64_t count = call.sets.dim(1);
  const double scale = *call.scale.data<float>() / static_cast<double>(count);
  const DType dtype = call.dlogits.dtype();
  const std::int64_t width = size_bytes(dtype);
  context.ranges(call.logits.dim(0), 1, [&](std::int64_t row, std::int64_t) {
    const float* logits = call.logits.data<float>() + row * call.logits.stride(0);
    std::byte* dlogits = call.dlogits.raw() + row * call.dlogits.stride(0) * width;
    const double factor = call.mask.data<float>()[row] * scale;
    const bool labeled = labels[row] >= 0;
    const auto* set = call.sets.data<std::uint8_t>() + (labeled ? labels[row] : 0) * count;
    for (std::int64_t i = 0; i < call.logits.dim(1); ++i) {
      double gradient = 0;
      if (labeled && i < call.valid) {
        const double wanted = set[call.vocabulary_begin + i];
        gradient = (1 / (1 + std::exp(-static_cast<double>(logits[i]))) - wanted) * factor;
      }
      put(dlogits + i * width, dtype, static_cast<float>(gradient));
    }
  });
}

}  // namespace piton::cpu
