// CAdam's maxima of rows and update.
#include "kernels/cadam.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/span_calls.h"
#include "kernels/cuda/updates/spans.cuh"

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

  __device__ void run_block(std::int64_t row) const {
    float* parts = shared_array<float>();
    std::int64_t begin = row * m.columns - m.first_column;
    std::int64_t end = begin + m.columns;
    if (begin < 0) begin = 0;
    if (end > n) end = n;
    float largest = 0;
    if (m.scalars[kApply] != 0) {
      for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
        largest = fmaxf(largest, fabsf(m(i)));
      }
    }
    largest = reduced(largest, parts, Largest{});
    if (threadIdx.x == 0) maxima[row] = largest;
  }
};

__device__ float new_scale(float maximum) {
  return maximum / static_cast<float>(kCadamLargest) + static_cast<float>(kCadamEps);
}

template <typename T>
struct CadamElement {
  static constexpr int kVector = 1;
  float* main;
  __half* momentum;
  T* copy;  // or nullptr
  const float* maxima;
  NewMomentum m;
  float decay_multiplier;

  template <int kCount>
  __device__ void run(std::int64_t, std::int64_t i) const {
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
  static constexpr int kVector = 1;
  float* scales;
  const float* maxima;
  const float* scalars;

  template <int kCount>
  __device__ void run(std::int64_t, std::int64_t row) const {
    if (scalars[kApply] != 0) scales[row] = new_scale(maxima[row]);
  }
};

}  // namespace

void execute(const Calls<CadamMaxima>& calls, const CallContext& context) {
  std::vector<Span<MaximaRows>> spans;
  for (const CadamMaxima* call : calls) {
    spans.push_back({{pointer<float>(call->maxima), new_momentum(*call), call->gradient.dim(0)},
                     call->maxima.dim(0)});
  }
  launch_spans("launch of cadam maxima", spans, kWarps * sizeof(float), context.stream);
}

void execute(const Calls<CadamUpdate>& all, const CallContext& context) {
  by_copy_dtype(all, [&]<typename T>(std::type_identity<T>, const Calls<CadamUpdate>& calls) {
    std::vector<Span<ElementSpan<CadamElement<T>>>> spans;
    for (const CadamUpdate* call : calls) {
      spans.push_back(element_span(
          flat(1, {call->main}),
          CadamElement<T>{pointer<float>(call->main), pointer<__half>(call->momentum),
                          pointer<T>(call->copy), pointer<const float>(call->maxima),
                          new_momentum(*call), static_cast<float>(call->decay_multiplier)}));
    }
    launch_spans("launch of cadam update", spans, 0, context.stream);
  });
  std::vector<Span<ElementSpan<NewScale>>> scales;  // that the elements have read
  for (const CadamUpdate* call : all) {
    scales.push_back(
        element_span(flat(1, {call->scales}),
                     NewScale{pointer<float>(call->scales), pointer<const float>(call->maxima),
                              pointer<const float>(call->scalars)}));
  }
  launch_spans("launch of cadam update, scales", scales, 0, context.stream);
}

void execute(const CadamMaxima& call, const CallContext& context) {
  execute(Calls<CadamMaxima>{&call}, context);
}
void execute(const CadamUpdate& call, const CallContext& context) {
  execute(Calls<CadamUpdate>{&call}, context);
}

}  // namespace piton::cuda
