// One thread for each element; the log-sum-exp of a row changes after all elements have read it.
// The gradient: a block for each head.
#include "kernels/cuda/attention/head_matrix.cuh"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/reduce.cuh"

namespace piton::cuda {
namespace {

template <typename S>
__device__ S lse_with(S lse, S sink) {
  const S most = lse < sink ? sink : lse;
  return most + log(exp(lse - most) + exp(sink - most));
}

// T: of the sinks.
template <typename T, typename S>
__device__ S sink_of(const T* sinks, std::int64_t head) {
  return sinks == nullptr ? S{0} : static_cast<S>(widen(sinks[head]));
}

template <typename X, typename T>
struct SinkElement {
  using S = Wide<X>;
  HeadMatrix<X> out;
  const S* lse;
  const T* sinks;
  std::int64_t queries;
  std::int64_t heads;
  std::int64_t d;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / d;
    const std::int64_t sample = row / (queries * heads);
    const std::int64_t query = row / heads % queries;
    const std::int64_t head = row % heads;
    const S own = lse[(sample * heads + head) * queries + query];
    const S share = exp(own - lse_with(own, sink_of<T, S>(sinks, head)));
    X& element = out.row(sample, query, head)[i % d];
    element = narrow<X>(static_cast<S>(widen(element)) * share);
  }
};

template <typename T, typename S>
struct SinkSum {
  S* lse;
  const T* sinks;
  std::int64_t queries;
  std::int64_t heads;

  __device__ void operator()(std::int64_t i) const {
    lse[i] = lse_with(lse[i], sink_of<T, S>(sinks, i / queries % heads));
  }
};

template <typename T>
struct SinkGradient {
  Wide<T>* dsinks;
  HeadMatrix<const T> dout;
  HeadMatrix<const T> out;
  const Wide<T>* lse;
  const T* sinks;
  std::int64_t samples;
  std::int64_t queries;
  std::int64_t heads;
  std::int64_t d;
};

// Threads take queries in turn, so that the order of the sum depends only on sizes.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) add_sink_gradient(SinkGradient<T> all) {
  using S = Wide<T>;
  const std::int64_t head = blockIdx.x;
  const S sink = static_cast<S>(widen(all.sinks[head]));
  S sum = 0;
  for (std::int64_t row = threadIdx.x; row < all.samples * all.queries; row += kThreads) {
    const std::int64_t sample = row / all.queries;
    const std::int64_t query = row % all.queries;
    const T* dout = all.dout.row(sample, query, head);
    const T* out = all.out.row(sample, query, head);
    S product = 0;
    for (std::int64_t i = 0; i < all.d; ++i)
      product += static_cast<S>(widen(dout[i])) * static_cast<S>(widen(out[i]));
    sum += exp(sink - all.lse[(sample * all.heads + head) * all.queries + query]) * product;
  }
  const S whole = block_sum(sum, shared_array<S>());
  if (threadIdx.x == 0) all.dsinks[head] -= whole;
}

}  // namespace

void execute(const AttentionSink& call, const CallContext& context) {
  const DType sinks = call.sinks.defined() ? call.sinks.dtype() : call.out.dtype();
  with_stream(call.out.dtype(), sinks,
              [&]<typename X, typename T>(std::type_identity<X>, std::type_identity<T>) {
                using S = Wide<X>;
                launch_elements(
                    "launch of attention sink", call.out.elements(),
                    SinkElement<X, T>{head_matrix<X>(call.out), pointer<const S>(call.lse),
                                      pointer<const T>(call.sinks), call.out.dim(1),
                                      call.out.dim(2), call.out.dim(3)},
                    context.stream);
                launch_elements("launch of the sums of attention sink", call.lse.elements(),
                                SinkSum<T, S>{pointer<S>(call.lse), pointer<const T>(call.sinks),
                                              call.out.dim(1), call.out.dim(2)},
                                context.stream);
              });
}

void execute(const AttentionSinkBackward& call, const CallContext& context) {
  if (call.out.elements() == 0) return;
  with_floating(call.out.dtype(), [&]<typename T>(std::type_identity<T>) {
    using S = Wide<T>;
    launch("launch of attention sink backward", add_sink_gradient<T>,
           {.blocks = {static_cast<unsigned>(call.out.dim(2)), 1, 1},
            .shared_bytes = kWarps * sizeof(S)},
           SinkGradient<T>{.dsinks = pointer<S>(call.dsinks),
                           .dout = head_matrix<const T>(call.dout),
                           .out = head_matrix<const T>(call.out),
                           .lse = pointer<const S>(call.lse),
                           .sinks = pointer<const T>(call.sinks),
                           .samples = call.out.dim(0),
                           .queries = call.out.dim(1),
                           .heads = call.out.dim(2),
                           .d = call.out.dim(3)},
           context.stream);
  });
}

}  // namespace piton::cuda
