// Convolution of channels: a thread for each number. Gradients of the sums are written to scratch,
// which both products with them read.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/recurrent/text_rows.cuh"
#include "kernels/cuda/scratch.h"
#include "kernels/recurrent/convolution.h"

namespace piton::cuda {
namespace {

template <typename T>
struct Filters {
  StridedRows<const T> x;
  const T* weight;
  const T* bias;   // or nullptr
  const T* state;  // or nullptr
  TextPlaces texts;
  std::int64_t channels;
  std::int64_t width;

  __device__ Wide<T> sum(std::int64_t row, std::int64_t channel) const {
    const RowsOfText text = texts.of(texts.text_of(row));
    Wide<T> z = bias == nullptr ? Wide<T>{0} : widen(bias[channel]);
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t other = row - width + 1 + j;
      const Wide<T> w = widen(weight[channel * width + j]);
      if (other < text.begin && text.continues) {
        const std::int64_t stored = text.slot * (width - 1) + width - 1 - (text.begin - other);
        z += w * widen(state[stored * channels + channel]);
      } else if (texts.sees(text, row, other)) {
        z += w * widen(x.at(other, channel));
      }
    }
    return z;
  }
};

template <typename T>
Filters<T> filters_of(const Tensor& x, const Tensor& weight, const Tensor& bias,
                      const Tensor& state, const TextPlaces& texts) {
  return {.x = strided_rows<const T>(x),
          .weight = pointer<const T>(weight),
          .bias = pointer<const T>(bias),
          .state = pointer<const T>(state),
          .texts = texts,
          .channels = x.dim(1),
          .width = weight.dim(1)};
}

template <typename T>
struct Convolve {
  Filters<T> filters;
  T* y;
  bool silu;

  __device__ void operator()(std::int64_t i) const {
    const Wide<T> z = filters.sum(i / filters.channels, i % filters.channels);
    y[i] = narrow<T>(silu ? z / (Wide<T>{1} + exp(-z)) : z);
  }
};

// The last rows of each text. Of few rows, some are those of before, further to the front.
template <typename T>
struct KeepRows {
  Filters<T> filters;
  T* state;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t channel = i % filters.channels;
    const RowsOfText text = filters.texts.of(i / filters.channels);
    const std::int64_t rows = text.end - text.begin;
    const std::int64_t before = filters.width - 1;
    T* kept = state + text.slot * before * filters.channels + channel;
    for (std::int64_t j = 0; j < before; ++j) {
      const std::int64_t row = text.end - before + j;
      T value = narrow<T>(Wide<T>{0});
      if (row >= text.begin) {
        value = filters.x.at(row, channel);
      } else if (text.continues) {
        value = kept[(j + rows) * filters.channels];
      }
      kept[j * filters.channels] = value;
    }
  }
};

template <typename T>
struct SumGradient {
  Filters<T> filters;
  const T* dy;
  Wide<T>* dz;
  bool silu;

  __device__ void operator()(std::int64_t i) const {
    const Wide<T> one = 1;
    const Wide<T> z = filters.sum(i / filters.channels, i % filters.channels);
    const Wide<T> s = one / (one + exp(-z));
    dz[i] = widen(dy[i]) * (silu ? s * (one + z * (one - s)) : one);
  }
};

template <typename T>
struct InputGradient {
  Filters<T> filters;
  const Wide<T>* dz;
  StridedRows<T> dx;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / filters.channels;
    const std::int64_t channel = i % filters.channels;
    const RowsOfText text = filters.texts.of(filters.texts.text_of(row));
    Wide<T> sum = 0;
    for (std::int64_t j = 0; j < filters.width; ++j) {
      const std::int64_t later = row + filters.width - 1 - j;
      if (!filters.texts.sees(text, row, later)) continue;
      sum += widen(filters.weight[channel * filters.width + j]) *
             dz[later * filters.channels + channel];
    }
    dx.at(row, channel) = narrow<T>(sum);
  }
};

// Neighboring threads have neighboring channels. Behind the filters are the biases.
template <typename T>
struct FilterGradient {
  Filters<T> filters;
  const Wide<T>* dz;
  Wide<T>* dweight;  // or nullptr
  Wide<T>* dbias;    // or nullptr

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t channel = i % filters.channels;
    const std::int64_t j = i / filters.channels;
    const bool of_bias = j == filters.width;
    if ((of_bias ? dbias : dweight) == nullptr) return;
    Wide<T> sum = 0;
    for (std::int64_t text = 0; text < filters.texts.count; ++text) {
      const RowsOfText of = filters.texts.of(text);
      for (std::int64_t row = of.begin; row < of.end; ++row) {
        const Wide<T> term = dz[row * filters.channels + channel];
        const std::int64_t other = row - filters.width + 1 + j;
        if (of_bias) {
          sum += term;
        } else if (filters.texts.sees(of, row, other)) {
          sum += term * widen(filters.x.at(other, channel));
        }
      }
    }
    (of_bias ? dbias[channel] : dweight[channel * filters.width + j]) += sum;
  }
};

}  // namespace

void execute(const ConvolutionForward& call, const CallContext& context) {
  const std::int64_t n = call.x.dim(0);
  const std::int64_t channels = call.x.dim(1);
  const TextPlaces texts = places_of(call.texts, call.segments, call.samples, n);
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    const Filters<T> filters = filters_of<T>(call.x, call.weight, call.bias, call.state, texts);
    launch_elements("launch of convolution forward", n * channels,
                    Convolve<T>{.filters = filters, .y = pointer<T>(call.y), .silu = call.silu},
                    context.stream);
    if (!call.state.defined()) return;
    launch_elements("launch of kept rows", texts.count * channels,
                    KeepRows<T>{.filters = filters, .state = pointer<T>(call.state)},
                    context.stream);
  });
}

void execute(const ConvolutionBackward& call, const CallContext& context) {
  const std::int64_t n = call.x.dim(0);
  const std::int64_t channels = call.x.dim(1);
  if (n == 0) return;
  const TextPlaces texts = places_of({}, call.segments, call.samples, n);
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    using S = Wide<T>;
    const Tensor sums = scratch(sizeof(S) == 8 ? DType::kF64 : DType::kF32, {n, channels}, context);
    S* dz = pointer<S>(sums);
    const Filters<T> filters = filters_of<T>(call.x, call.weight, call.bias, {}, texts);
    launch_elements(
        "launch of convolution backward", n * channels,
        SumGradient<T>{
            .filters = filters, .dy = pointer<const T>(call.dy), .dz = dz, .silu = call.silu},
        context.stream);
    launch_elements("launch of the gradient of inputs", n * channels,
                    InputGradient<T>{.filters = filters, .dz = dz, .dx = strided_rows<T>(call.dx)},
                    context.stream);
    if (!call.dweight.defined() && !call.dbias.defined()) return;
    launch_elements("launch of the gradient of filters",
                    call.weight.elements() + (call.dbias.defined() ? channels : 0),
                    FilterGradient<T>{.filters = filters,
                                      .dz = dz,
                                      .dweight = pointer<S>(call.dweight),
                                      .dbias = pointer<S>(call.dbias)},
                    context.stream);
  });
}

}  // namespace piton::cuda
