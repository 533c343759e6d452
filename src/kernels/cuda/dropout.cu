// Dropout with bias and residual.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/mask.cuh"
#include "kernels/cuda/reduce.cuh"

namespace piton::cuda {
namespace {

// Y: of y and the residual, T: of the rest.
template <typename Y, typename T>
struct DropAndAdd {
  Y* y;
  const T* x;
  const T* bias;      // or nullptr
  const Y* residual;  // or nullptr; may be y
  std::int64_t h;
  MaskSite site;

  __device__ void operator()(std::int64_t index) const {
    using S = Wide<T>;
    const std::int64_t row = index / h;
    const std::int64_t i = index % h;
    S sum = widen(x[index]);
    if (bias != nullptr) sum += widen(bias[i]);
    sum *= site.row_factor<S>(row, i);
    if (residual != nullptr) sum += widen(residual[index]);
    y[index] = narrow<Y>(sum);
  }
};

// The gradient before it is rounded.
template <typename Y>
struct DropGradient {
  const Y* dy;
  std::int64_t h;
  MaskSite site;

  __device__ Wide<Y> operator()(std::int64_t row, std::int64_t i) const {
    return widen(dy[row * h + i]) * site.row_factor<Wide<Y>>(row, i);
  }
};

template <typename Y, typename T>
struct WriteDropGradient {
  T* dx;  // may be dy, if of its type
  DropGradient<Y> gradient;

  __device__ void operator()(std::int64_t index) const {
    dx[index] = narrow<T>(gradient(index / gradient.h, index % gradient.h));
  }
};

}  // namespace

void execute(const DropoutAddForward& call, const CallContext& context) {
  with_stream(call.y.dtype(), call.x.dtype(),
              [&]<typename Y, typename T>(std::type_identity<Y>, std::type_identity<T>) {
                launch_elements(
                    "launch of dropout add forward", call.x.elements(),
                    DropAndAdd<Y, T>{pointer<Y>(call.y), pointer<const T>(call.x),
                                     pointer<const T>(call.bias), pointer<const Y>(call.residual),
                                     call.x.dim(1), mask_site(call.dropout)},
                    context.stream);
              });
}

void execute(const DropoutAddBackward& call, const CallContext& context) {
  const std::int64_t n = call.dy.dim(0);
  const std::int64_t h = call.dy.dim(1);
  with_stream(
      call.dy.dtype(), call.dx.dtype(),
      [&]<typename Y, typename T>(std::type_identity<Y>, std::type_identity<T>) {
        using S = Wide<Y>;
        const DropGradient<Y> gradient{pointer<const Y>(call.dy), h, mask_site(call.dropout)};
        if (call.dbias.defined()) {  // first: dx may be the memory of dy
          launch_column_sums("launch of dropout add backward, bias",
                             ColumnSums<S, DropGradient<Y>>{gradient, pointer<S>(call.dbias), n, h},
                             context.stream);
        }
        launch_elements("launch of dropout add backward", call.dy.elements(),
                        WriteDropGradient<Y, T>{pointer<T>(call.dx), gradient}, context.stream);
      });
}

}  // namespace piton::cuda
