// AdamW, SGD and sums of squares over flat spans, in fp32; what an update needs to know, in fp64.
#include <cmath>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/float_bits.cuh"
#include "kernels/cuda/held_row.cuh"
#include "kernels/cuda/span_calls.h"
#include "kernels/cuda/updates/spans.cuh"

namespace piton::cuda {
namespace {

// Numbers below 2^16, by which v is rounded (kernels/optimizer.h).
__device__ std::uint32_t drawn_bits(float gradient, float main, std::uint32_t update_number) {
  std::uint32_t x = bits_of(gradient) * 0x9E3779B1U + bits_of(main) + update_number * 0x85EBCA6BU;
  x = (x ^ (x >> 16)) * 0x7FEB352DU;
  x = (x ^ (x >> 15)) * 0x846CA68BU;
  return (x ^ (x >> 16)) & 0xFFFFU;
}

// First, Second: float or bf16, of the moments.
template <typename T, typename First, typename Second>
struct Adamw {
  static constexpr int kVector = kVectorOf<T, float>;
  float* main;
  First* first;
  Second* second;
  T* copy;  // or nullptr
  const float* gradient;
  const float* scalars;
  float beta1;
  float rest1;  // 1 - beta1, from fp64
  float beta2;
  float rest2;
  float eps;
  float decay_multiplier;
  float lr_multiplier;

  template <int kCount>
  __device__ void run(std::int64_t, std::int64_t i) const {
    if (scalars[kApply] == 0) return;
    const auto gradients = load<kCount>(gradient + i);
    auto m = load_wide<kCount>(first + i);
    auto v = load_wide<kCount>(second + i);
    auto x = load<kCount>(main + i);
    const float lr = scalars[kLearningRate] * lr_multiplier;
    const float kept = 1.0F - lr * scalars[kWeightDecay] * decay_multiplier;
    const auto update = static_cast<std::uint32_t>(scalars[kUpdateNumber]);
    for (int j = 0; j < kCount; ++j) {
      const float before = x.at[j];
      const float g = gradients.at[j] * scalars[kGradientScale];
      m.at[j] = beta1 * m.at[j] + rest1 * g;
      v.at[j] = beta2 * v.at[j] + rest2 * g * g;
      x.at[j] = x.at[j] * kept - lr * (m.at[j] / scalars[kCorrection1]) /
                                     (sqrtf(v.at[j] / scalars[kCorrection2]) + eps);
      if constexpr (sizeof(Second) == 2) {
        const std::uint32_t drawn = drawn_bits(gradients.at[j], before, update);
        v.at[j] = float_of((bits_of(v.at[j]) + drawn) & 0xFFFF0000U);
      }
    }
    store_rounded(first + i, m);
    store_rounded(second + i, v);
    store(main + i, x);
    if (copy != nullptr) store_rounded(copy + i, x);
  }
};

template <typename T>
struct Sgd {
  static constexpr int kVector = kVectorOf<T, float>;
  float* main;
  float* buffer;  // or nullptr
  T* copy;        // or nullptr
  const float* gradient;
  const float* scalars;
  float momentum;
  float decay_multiplier;
  float lr_multiplier;

  template <int kCount>
  __device__ void run(std::int64_t, std::int64_t i) const {
    if (scalars[kApply] == 0) return;
    const auto gradients = load<kCount>(gradient + i);
    auto x = load<kCount>(main + i);
    const float lr = scalars[kLearningRate] * lr_multiplier;
    Numbers<float, kCount> step;
    for (int j = 0; j < kCount; ++j) {
      step.at[j] = gradients.at[j] * scalars[kGradientScale] +
                   scalars[kWeightDecay] * decay_multiplier * x.at[j];
    }
    if (buffer != nullptr) {
      const auto before = load<kCount>(buffer + i);
      for (int j = 0; j < kCount; ++j) step.at[j] = momentum * before.at[j] + step.at[j];
      store(buffer + i, step);
    }
    for (int j = 0; j < kCount; ++j) x.at[j] = x.at[j] - lr * step.at[j];
    store(main + i, x);
    if (copy != nullptr) store_rounded(copy + i, x);
  }
};

struct SignStep {
  static constexpr int kVector = kVectorOf<float>;
  float* main;
  const float* gradient;
  const float* scalars;
  float rate;

  template <int kCount>
  __device__ void run(std::int64_t, std::int64_t i) const {
    if (scalars[kApply] == 0) return;
    const auto gradients = load<kCount>(gradient + i);
    auto x = load<kCount>(main + i);
    for (int j = 0; j < kCount; ++j) {
      if (gradients.at[j] > 0) x.at[j] -= rate;
      if (gradients.at[j] < 0) x.at[j] += rate;
    }
    store(main + i, x);
  }
};

struct Average {
  static constexpr int kVector = kVectorOf<float>;
  float* average;
  const float* main;
  const float* scalars;
  float rest;  // 1 - decay

  template <int kCount>
  __device__ void run(std::int64_t, std::int64_t i) const {
    if (scalars[kApply] == 0) return;
    auto mean = load<kCount>(average + i);
    const auto x = load<kCount>(main + i);
    for (int j = 0; j < kCount; ++j) mean.at[j] += rest * (x.at[j] - mean.at[j]);
    store(average + i, mean);
  }
};

struct SquareBlocks {
  double* sums;
  const float* x;
  std::int64_t n;
  std::int64_t block;
  bool vectors;

  __device__ void run_block(std::int64_t index) const;
};

__device__ void SquareBlocks::run_block(std::int64_t index) const {
  constexpr int kCount = kVectorOf<float>;
  using Team = RowTeam<kThreads, 4, kCount>;
  double* parts = shared_array<double>();
  const std::int64_t begin = index * block;
  const std::int64_t rest = n - begin;
  const std::int64_t size = rest < block ? rest : block;
  const Team team{size, vectors && size % kCount == 0};
  double sum = 0;
  for (std::int64_t strip = 0; strip < size; strip += Team::kStrip) {
    Numbers<float, kCount> held[4];
    team.load(x + begin, strip, held);
    team.each(strip, [&](int v, std::int64_t) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {  // zeros past the end
        const double value = held[v].at[i];
        sum = fma(value, value, sum);
      }
    });
  }
  sum = block_sum(sum, parts);
  if (threadIdx.x == 0) sums[index] = sum;
}

struct Begin {
  float* scalars;
  double* counts;
  const double* sums;
  std::int64_t n;
  double beta1;
  double beta2;
  double clip;
  bool dynamic;
  double least;
  double window;
  double hysteresis;
  double* history;  // or nullptr
  std::int64_t spike_window;
  double sigmas;
};

// mean + sigmas deviation of `count` values.
__device__ double spike_limit(const double* values, std::int64_t count, double sigmas) {
  double mean = 0;
  for (std::int64_t i = 0; i < count; ++i) mean += values[i] / static_cast<double>(count);
  double variance = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    variance += (values[i] - mean) * (values[i] - mean) / static_cast<double>(count - 1);
  }
  return mean + sigmas * sqrt(variance);
}

__device__ bool is_spike(const Begin& all, double norm) {
  double* losses = all.history + kSpikeRings;
  double* norms = losses + all.spike_window;
  const auto steps = static_cast<std::int64_t>(all.history[kSpikeSteps]);
  const std::int64_t known = steps < all.spike_window ? steps : all.spike_window;
  const double loss = all.history[kSpikeLoss];
  const bool spike = known >= 2 && known >= all.spike_window / 2 &&
                     (loss > spike_limit(losses, known, all.sigmas) ||
                      norm > spike_limit(norms, known, all.sigmas));
  if (isfinite(loss)) {
    losses[steps % all.spike_window] = loss;
    norms[steps % all.spike_window] = norm;
    all.history[kSpikeSteps] += 1;
  }
  return spike;
}

// One block adds the sums, some ten thousand numbers, and its first thread does the rest.
__global__ void __launch_bounds__(kThreads, kBlocks) begin_update(Begin all) {
  const double sum = sum_in_block(all.sums, all.n, shared_array<double>());
  if (threadIdx.x != 0) return;
  double* counts = all.counts;
  const double loss_scale = counts[kLossScale];
  const double norm = sqrt(sum) / loss_scale;
  const bool finite = isfinite(norm);
  const bool made = finite && !(all.history != nullptr && is_spike(all, norm));
  counts[made ? kUpdates : kSkipped] += 1;
  counts[kGradientNorm] = norm;
  const double t = counts[kUpdates] > 1 ? counts[kUpdates] : 1.0;
  all.scalars[kCorrection1] = static_cast<float>(1 - pow(all.beta1, t));
  all.scalars[kCorrection2] = static_cast<float>(1 - pow(all.beta2, t));
  const double clipped = all.clip / (norm + 1e-6);
  const double factor = all.clip > 0 && finite && clipped < 1 ? clipped : 1.0;
  all.scalars[kGradientScale] = static_cast<float>(factor / loss_scale);
  all.scalars[kApply] = made ? 1.0F : 0.0F;
  all.scalars[kUpdateNumber] = static_cast<float>(t);
  if (!all.dynamic) return;
  counts[kGoodUpdates] = finite ? counts[kGoodUpdates] + 1 : 0;
  if (!finite) counts[kHysteresisLeft] -= 1;
  if (!finite && counts[kHysteresisLeft] <= 0) {
    counts[kLossScale] = loss_scale / 2 > all.least ? loss_scale / 2 : all.least;
  }
  if (counts[kGoodUpdates] == all.window) {
    counts[kGoodUpdates] = 0;
    counts[kHysteresisLeft] = all.hysteresis;
    counts[kLossScale] = 2 * loss_scale;
  }
}

template <typename T, typename First, typename Second>
Span<ElementSpan<Adamw<T, First, Second>>> adamw_span(const AdamwUpdate& call) {
  using Body = Adamw<T, First, Second>;
  return element_span(
      flat(Body::kVector, {call.main, call.first, call.second, call.copy, call.gradient}),
      Body{.main = pointer<float>(call.main),
           .first = pointer<First>(call.first),
           .second = pointer<Second>(call.second),
           .copy = pointer<T>(call.copy),
           .gradient = pointer<const float>(call.gradient),
           .scalars = pointer<const float>(call.scalars),
           .beta1 = static_cast<float>(call.beta1),
           .rest1 = static_cast<float>(1 - call.beta1),
           .beta2 = static_cast<float>(call.beta2),
           .rest2 = static_cast<float>(1 - call.beta2),
           .eps = static_cast<float>(call.eps),
           .decay_multiplier = static_cast<float>(call.decay_multiplier),
           .lr_multiplier = static_cast<float>(call.lr_multiplier)});
}

template <typename T>
Span<ElementSpan<Sgd<T>>> sgd_span(const SgdUpdate& call) {
  return element_span(flat(Sgd<T>::kVector, {call.main, call.buffer, call.copy, call.gradient}),
                      Sgd<T>{.main = pointer<float>(call.main),
                             .buffer = pointer<float>(call.buffer),
                             .copy = pointer<T>(call.copy),
                             .gradient = pointer<const float>(call.gradient),
                             .scalars = pointer<const float>(call.scalars),
                             .momentum = static_cast<float>(call.momentum),
                             .decay_multiplier = static_cast<float>(call.decay_multiplier),
                             .lr_multiplier = static_cast<float>(call.lr_multiplier)});
}

// use(T, calls) for the calls whose moment has the dtype T: fp32, then bf16.
template <typename Use>
void by_moment(const Calls<AdamwUpdate>& all, DType (*dtype_of)(const AdamwUpdate&), Use use) {
  Calls<AdamwUpdate> whole, half;
  for (const AdamwUpdate* call : all) {
    (dtype_of(*call) == DType::kF32 ? whole : half).push_back(call);
  }
  if (!whole.empty()) use(std::type_identity<float>{}, whole);
  if (!half.empty()) use(std::type_identity<__nv_bfloat16>{}, half);
}

template <typename Call, typename Of>
auto spans_of(const Calls<Call>& calls, Of span_of) {
  std::vector<decltype(span_of(*calls.front()))> spans;
  spans.reserve(calls.size());
  for (const Call* call : calls) spans.push_back(span_of(*call));
  return spans;
}

}  // namespace

void execute(const Calls<AdamwUpdate>& all, const CallContext& context) {
  by_copy_dtype(all, [&]<typename T>(std::type_identity<T>, const Calls<AdamwUpdate>& copies) {
    const auto first_of = [](const AdamwUpdate& call) { return call.first.dtype(); };
    const auto second_of = [](const AdamwUpdate& call) { return call.second.dtype(); };
    by_moment(copies, first_of, [&]<typename M>(std::type_identity<M>, const auto& firsts) {
      by_moment(firsts, second_of, [&]<typename V>(std::type_identity<V>, const auto& calls) {
        launch_spans("launch of adamw", spans_of(calls, adamw_span<T, M, V>), 0, context.stream);
      });
    });
  });
}
void execute(const Calls<SgdUpdate>& all, const CallContext& context) {
  by_copy_dtype(all, [&]<typename T>(std::type_identity<T>, const Calls<SgdUpdate>& calls) {
    launch_spans("launch of sgd", spans_of(calls, sgd_span<T>), 0, context.stream);
  });
}

void execute(const Calls<SignUpdate>& calls, const CallContext& context) {
  std::vector<Span<ElementSpan<SignStep>>> spans;
  for (const SignUpdate* call : calls) {
    spans.push_back(element_span(
        flat(SignStep::kVector, {call->main, call->gradient}),
        SignStep{pointer<float>(call->main), pointer<const float>(call->gradient),
                 pointer<const float>(call->scalars), static_cast<float>(call->rate)}));
  }
  launch_spans("launch of sign update", spans, 0, context.stream);
}

void execute(const Calls<MovingAverage>& calls, const CallContext& context) {
  std::vector<Span<ElementSpan<Average>>> spans;
  for (const MovingAverage* call : calls) {
    spans.push_back(element_span(
        flat(Average::kVector, {call->average, call->main}),
        Average{pointer<float>(call->average), pointer<const float>(call->main),
                pointer<const float>(call->scalars), static_cast<float>(1 - call->decay)}));
  }
  launch_spans("launch of moving average", spans, 0, context.stream);
}

void execute(const Calls<SquareSums>& calls, const CallContext& context) {
  std::vector<Span<SquareBlocks>> spans;
  for (const SquareSums* call : calls) {
    spans.push_back({{.sums = pointer<double>(call->sums),
                      .x = pointer<const float>(call->x),
                      .n = call->x.dim(0),
                      .block = call->block,
                      .vectors = call->block % kVectorOf<float> == 0 &&
                                 vectors_fit(kVectorOf<float>, {call->x})},
                     call->sums.dim(0)});
  }
  launch_spans("launch of square sums", spans, kWarps * sizeof(double), context.stream);
}

void execute(const AdamwUpdate& call, const CallContext& context) {
  execute(Calls<AdamwUpdate>{&call}, context);
}
void execute(const SgdUpdate& call, const CallContext& context) {
  execute(Calls<SgdUpdate>{&call}, context);
}
void execute(const SignUpdate& call, const CallContext& context) {
  execute(Calls<SignUpdate>{&call}, context);
}
void execute(const MovingAverage& call, const CallContext& context) {
  execute(Calls<MovingAverage>{&call}, context);
}
void execute(const SquareSums& call, const CallContext& context) {
  execute(Calls<SquareSums>{&call}, context);
}

void execute(const BeginUpdate& call, const CallContext& context) {
  const Tensor& history = call.spikes.history;
  launch("launch of begin update", begin_update,
         {.blocks = {1, 1, 1}, .shared_bytes = kWarps * sizeof(double)},
         Begin{.scalars = pointer<float>(call.scalars),
               .counts = pointer<double>(call.counts),
               .sums = pointer<const double>(call.sums),
               .n = call.sums.dim(0),
               .beta1 = call.beta1,
               .beta2 = call.beta2,
               .clip = call.clip,
               .dynamic = call.scaling.dynamic,
               .least = call.scaling.least,
               .window = static_cast<double>(call.scaling.window),
               .hysteresis = static_cast<double>(call.scaling.hysteresis),
               .history = pointer<double>(history),
               .spike_window = history.defined() ? (history.dim(0) - kSpikeRings) / 2 : 0,
               .sigmas = call.spikes.sigmas},
         context.stream);
}

}  // namespace piton::cuda
