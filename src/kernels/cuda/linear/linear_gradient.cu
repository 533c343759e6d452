// dx = dy W + residual, dW += dy^T x, dbias += column sums of dy.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/float8/linear_float8.h"
#include "kernels/cuda/product.h"

namespace piton::cuda {
namespace {

// `tensor` in `dtype`: itself, or rounded into scratch.
Tensor in_dtype(const Tensor& tensor, DType dtype, const CallContext& context) {
  if (tensor.dtype() == dtype) return tensor;
  const Tensor rounded = scratch(dtype, tensor.shape(), context);
  execute(Copy{.dst = rounded, .src = tensor}, context);
  return rounded;
}

template <typename T>
struct RowTerm {
  static constexpr int kVector = kVectorOf<T>;
  static constexpr int kSums = 1;
  static constexpr int kRowsAtOnce = 4;
  using Sum = Wide<T>;
  StridedRows<const T> dy;

  template <int kCount>
  __device__ void add(std::int64_t row, std::int64_t column,
                      Numbers<Sum, kCount> (&sums)[kSums]) const {
    const auto term = load_wide<kCount>(&dy.at(row, column));
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[0].at[i] += term.at[i];
  }
};

}  // namespace

void execute(const LinearBackwardInput& call, const CallContext& context) {
  if (call.dx.elements() == 0) return;
  PITON_ASSERT(call.weight.form == WeightForm::kRows || call.weight.form == WeightForm::kCodes,
               "cuda: linear backward input of a packed weight");
  if (call.float8.given()) return multiply_in_float8(call, context);
  const WeightView weight = plain_rows(call.weight, context);
  if (call.first_rows.defined()) {
    LinearBackwardInput plain = call;
    plain.dy = in_dtype(call.dy, call.weight.dtype, context);
    plain.weight = weight;
    return multiply_experts(plain, context);
  }
  context.products.multiply({.y = call.dx,
                             .left = in_dtype(call.dy, call.weight.dtype, context),
                             .right = weight.tensor,
                             .addend = call.residual},
                            context);
}

void execute(const LinearBackwardWeight& call, const CallContext& context) {
  const std::int64_t n = call.x.dim(0);
  if (n == 0) {
    if (!call.overwrites || context.only_counts()) return;
    check(cudaMemsetAsync(call.dweight.raw(), 0, static_cast<std::size_t>(call.dweight.bytes()),
                          context.stream),
          "zero");
    return;
  }
  if (call.first_rows.defined()) {
    LinearBackwardWeight plain = call;
    plain.dy = in_dtype(call.dy, call.x.dtype(), context);
    return multiply_experts(plain, context);
  }
  if (call.float8.given()) {
    add_in_float8(call, context);
  } else {
    context.products.multiply({.y = call.dweight,
                               .left = in_dtype(call.dy, call.x.dtype(), context),
                               .right = call.x,
                               .left_transposed = true,
                               .addend = call.overwrites ? Tensor() : call.dweight},
                              context);
  }
  if (!call.dbias.defined()) return;
  with_floating(call.dy.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch_column_sums("launch of linear backward weight, bias",
                       {rows_of(call.dy, kVectorOf<T>, {call.dy}), call.dbias},
                       RowTerm<T>{strided_rows<const T>(call.dy)}, context);
  });
}

}  // namespace piton::cuda
