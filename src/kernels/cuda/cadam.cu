// CAdam's maxima of rows and update.
#include "kernels/cadam.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

namespace piton::cuda {
namespace {

struct NewMomentum {
  const __half* momentum;
  const float* scales;
  const float* gradient;
  const float* scalars;
  std::int64_t columns;
  std::int64_t first_column;
  float beta;
  float rest;  // 1 - beta

  __device__ std::int64_t row(std::int64_t i) const { return (first_column + i) / columns; }
  __device__ float operator()(std::int64_t i) const {
    return beta * (widen(momentum[i]) * scales[row(i)]) +
           rest * (gradient[i] * scalars[kGradientScale]);
  }
};

template <typename Call>
NewMomentum new_momentum(const Call& call) {
  return {.momentum = pointer<const __half>(call.momentum),
          .scales = pointer<const float>(call.scales),
          .gradient = pointer<const float>(call.gradient),
          .scalars = pointer<const float>(call.scalars),
          .columns = call.columns,
          .first_column = call.first_column,
          .beta = static_cast<float>(call.beta),
          .rest = static_cast<float>(1 - call.beta)};
}

struct MaximaRows {
  float* maxima;
  NewMomentum m;
  std::int64_t n;
};

__global__ void __launch_bounds__(kThreads, kBlocks) maxima_rows(MaximaRows all) {
  float* parts = shared_array<float>();
  std::int64_t begin = std::int64_t{blockIdx.x} * all.m.columns - all.m.first_column;
  std::int64_t end = begin + all.m.columns;
  if (begin < 0) begin = 0;
  if (end > all.n) end = all.n;
  float largest = 0;
  if (all.m.scalars[kApply] != 0) {
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      largest = fmaxf(largest, fabsf(all.m(i)));
    }
  }
  largest = reduced(largest, parts, Largest{});
  if (threadIdx.x == 0) all.maxima[blockIdx.x] = largest;
}

__device__ float new_scale(float maximum) {
  return maximum / static_cast<float>(kCadamLargest) + static_cast<float>(kCadamEps);
}

template <typename T>
struct CadamElement {
  float* main;
  __half* momentum;
  T* copy;  // or nullptr
  const float* maxima;
  NewMomentum m;
  float decay_multiplier;

  __device__ void operator()(std::int64_t i) const {
    if (m.scalars[kApply] == 0) return;
    const float value = m(i);
    const float limit = static_cast<float>(kCadamLargest);
    const float inverse = 1.0F / new_scale(maxima[m.row(i)]);
    const float lr = m.scalars[kLearningRate];
    const float sign = value > 0 ? 1.0F : value < 0 ? -1.0F : 0.0F;
    const float x = main[i] * (1.0F - lr * m.scalars[kWeightDecay] * decay_multiplier) - lr * sign;
    momentum[i] = narrow<__half>(fmaxf(-limit, fminf(value * inverse, limit)));
    main[i] = x;
    if (copy != nullptr) copy[i] = narrow<T>(x);
  }
};

struct NewScale {
  float* scales;
  const float* maxima;
  const float* scalars;

  __device__ void operator()(std::int64_t row) const {
    if (scalars[kApply] != 0) scales[row] = new_scale(maxima[row]);
  }
};

}  // namespace

void execute(const CadamMaxima& call, const CallContext& context) {
  const std::int64_t rows = call.maxima.dim(0);
  if (rows == 0) return;
  launch("launch of cadam maxima", maxima_rows,
         {.blocks = {static_cast<unsigned>(rows), 1, 1}, .shared_bytes = kWarps * sizeof(float)},
         MaximaRows{pointer<float>(call.maxima), new_momentum(call), call.gradient.dim(0)},
         context.stream);
}

void execute(const CadamUpdate& call, const CallContext& context) {
  const DType copied = call.copy.defined() ? call.copy.dtype() : DType::kF32;
  with_floating(copied, [&]<typename T>(std::type_identity<T>) {
    launch_elements("launch of cadam update", call.main.elements(),
                    CadamElement<T>{pointer<float>(call.main), pointer<__half>(call.momentum),
                                    pointer<T>(call.copy), pointer<const float>(call.maxima),
                                    new_momentum(call), static_cast<float>(call.decay_multiplier)},
                    context.stream);
  });
  launch_elements("launch of cadam update, scales", call.scales.elements(),
                  NewScale{pointer<float>(call.scales), pointer<const float>(call.maxima),
                           pointer<const float>(call.scalars)},
                  context.stream);
}

}  // namespace piton::cuda
