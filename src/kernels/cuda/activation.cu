// GELU in its three forms and SiLU, plain and gated.
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace piton::cuda {
namespace {

template <typename T>
struct Activate {
  StridedRows<T> y;
  StridedRows<const T> x;
  StridedRows<const T> up;
  std::int64_t f;
  ActivationKind kind;

  __device__ void operator()(std::int64_t index) const {
    const std::int64_t row = index / f;
    const std::int64_t i = index % f;
    Wide<T> value = activated(kind, widen(x.at(row, i)));
    if (up.data != nullptr) value *= widen(up.at(row, i));
    y.at(row, i) = narrow<T>(value);
  }
};

template <typename T>
struct ActivationGradient {
  StridedRows<T> dx;
  StridedRows<T> dup;
  StridedRows<const T> dy;
  StridedRows<const T> x;
  StridedRows<const T> up;
  std::int64_t f;
  ActivationKind kind;

  __device__ void operator()(std::int64_t index) const {
    const std::int64_t row = index / f;
    const std::int64_t i = index % f;
    const Wide<T> value = widen(x.at(row, i));
    const Wide<T> gradient = widen(dy.at(row, i));
    Wide<T> result = gradient * activation_slope(kind, value);
    if (up.data != nullptr) {
      result *= widen(up.at(row, i));
      dup.at(row, i) = narrow<T>(gradient * activated(kind, value));
    }
    dx.at(row, i) = narrow<T>(result);
  }
};

}  // namespace

void execute(const ActivationForward& call, const CallContext& context) {
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch_elements("launch of activation forward", call.x.elements(),
                    Activate<T>{strided_rows<T>(call.y), strided_rows<const T>(call.x),
                                strided_rows<const T>(call.up), call.x.dim(1), call.kind},
                    context.stream);
  });
}

void execute(const ActivationBackward& call, const CallContext& context) {
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch_elements(
        "launch of activation backward", call.x.elements(),
        ActivationGradient<T>{strided_rows<T>(call.dx), strided_rows<T>(call.dup),
                              strided_rows<const T>(call.dy), strided_rows<const T>(call.x),
                              strided_rows<const T>(call.up), call.x.dim(1), call.kind},
        context.stream);
  });
}

}  // namespace piton::cuda
