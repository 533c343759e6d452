// Muon's products: the library's whole square in scratch, of which the lower triangle is used.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product.h"
#include "kernels/cuda/scratch.h"

namespace piton::cuda {
namespace {

template <typename T>
struct Mirror {
  T* y;
  const T* addend;      // or nullptr
  const Wide<T>* sums;  // [n, n] contiguous
  std::int64_t y_stride;
  std::int64_t addend_stride;
  std::int64_t n;
  Wide<T> factor;
  Wide<T> addend_factor;
  Wide<T> diagonal;

  __device__ void operator()(std::int64_t index) const {
    const std::int64_t row = index / n;
    const std::int64_t column = index % n;
    if (column > row) return;
    Wide<T> sum = factor * sums[index];
    if (addend != nullptr) sum += addend_factor * widen(addend[row * addend_stride + column]);
    if (row == column) sum += diagonal;
    y[row * y_stride + column] = narrow<T>(sum);
    if (row != column) y[column * y_stride + row] = narrow<T>(sum);
  }
};

}  // namespace

void execute(const SymmetricProduct& call, const CallContext& context) {
  if (call.y.elements() == 0) return;
  const DType sums_type = call.y.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Tensor sums = scratch(sums_type, call.y.shape(), context);
  context.products.multiply({.y = sums,
                             .left = call.left,
                             .right = call.right,
                             .left_transposed = call.transposed,
                             .right_transposed = !call.transposed},
                            context);
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    using S = Wide<T>;
    launch_elements("launch of symmetric product, its end", call.y.elements(),
                    Mirror<T>{.y = pointer<T>(call.y),
                              .addend = pointer<const T>(call.addend),
                              .sums = pointer<const S>(sums),
                              .y_stride = call.y.stride(0),
                              .addend_stride = call.addend.defined() ? call.addend.stride(0) : 0,
                              .n = call.y.dim(0),
                              .factor = static_cast<S>(call.factor),
                              .addend_factor = static_cast<S>(call.addend_factor),
                              .diagonal = static_cast<S>(call.diagonal)},
                    context.stream);
  });
}

}  // namespace piton::cuda
