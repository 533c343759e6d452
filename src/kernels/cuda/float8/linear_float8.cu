// The three products of a linear in FP8. Sums go to scratch in fp32, and what follows them reads
// them there; a gradient of a weight is added to by the library where its sizes allow.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/float8/linear_float8.h"
#include "kernels/cuda/linear/linear_end.cuh"
#include "kernels/cuda/product.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/scratch.h"

namespace piton::cuda {
namespace {

// Of x and dy, and of W.
Float8Scales scales_of_rows(const Float8Products& float8) {
  return float8.recipe == Float8Recipe::kBlockwise ? Float8Scales::kRows : Float8Scales::kWhole;
}
Float8Scales scales_of_weight(const Float8Products& float8) {
  return float8.recipe == Float8Recipe::kBlockwise ? Float8Scales::kSquares : Float8Scales::kWhole;
}

// left right^T [rows, columns], in scratch whose rows may be longer.
Tensor sums_of(const Float8Factor& left, const Float8Factor& right, const Shape& shape,
               const CallContext& context) {
  const Tensor sums = scratch(DType::kF32, {left.codes.dim(0), right.codes.dim(0)}, context);
  context.products.multiply(Float8Product{.y = sums, .left = left, .right = right}, context);
  return sums.slice(0, 0, shape[0]).slice(1, 0, shape[1]);
}

// Bias, residual and activation of `call`, of which x and the weight are not read.
template <typename T>
void finish(const LinearForward& call, const Tensor& sums, const CallContext& context) {
  using End = LinearEnd<T, __nv_bfloat16>;
  End end = linear_end<T, __nv_bfloat16>(call, pointer<const float>(sums));
  end.sums_stride = sums.stride(0);
  launch_rows(
      "launch of the end of a linear in FP8",
      rows_of(call.y, End::kVector, {call.y, call.preactivation, call.residual, call.bias, sums}),
      end, context.stream);
}

struct AddSums {
  static constexpr int kVector = kVectorOf<float>;
  StridedRows<float> to;
  StridedRows<const float> sums;
  bool overwrites;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    auto sum = load<kCount>(&sums.at(row, column));
    if (!overwrites) {
      const auto old = load<kCount>(&to.at(row, column));
      for (int i = 0; i < kCount; ++i) sum.at[i] += old.at[i];
    }
    store(&to.at(row, column), sum);
  }
};

}  // namespace

void multiply_in_float8(const LinearForward& call, const CallContext& context) {
  const Float8Factor x = float8_factor(call.x, {.scales = scales_of_rows(call.float8)}, context);
  const Float8Factor weight =
      float8_factor(call.weight.tensor, {.scales = scales_of_weight(call.float8)}, context);
  const Tensor sums = sums_of(x, weight, call.y.shape(), context);
  if (call.y.dtype() == DType::kF32) return finish<float>(call, sums, context);
  finish<__nv_bfloat16>(call, sums, context);
}

void multiply_in_float8(const LinearBackwardInput& call, const CallContext& context) {
  const Float8Factor dy = float8_factor(
      call.dy, {.format = call.float8.gradients, .scales = scales_of_rows(call.float8)}, context);
  const Float8Factor weight = float8_factor(
      call.weight.tensor, {.scales = scales_of_weight(call.float8), .transposed = true}, context);
  const Tensor sums = sums_of(dy, weight, call.dx.shape(), context);
  LinearForward end{.y = call.dx, .residual = call.residual};
  end.weight.out = call.weight.in;
  finish<__nv_bfloat16>(end, sums, context);
}

void add_in_float8(const LinearBackwardWeight& call, const CallContext& context) {
  const Float8Scales scales = scales_of_rows(call.float8);
  const Float8Factor dy = float8_factor(
      call.dy, {.format = call.float8.gradients, .scales = scales, .transposed = true}, context);
  const Float8Factor x = float8_factor(call.x, {.scales = scales, .transposed = true}, context);
  const bool fits = dy.codes.dim(0) == call.dweight.dim(0) &&
                    x.codes.dim(0) == call.dweight.dim(1) &&
                    vectors_fit(AddSums::kVector, {call.dweight});  // the library has no others
  if (fits) {
    const Float8Product whole{.y = call.dweight, .left = dy, .right = x, .adds = !call.overwrites};
    return context.products.multiply(whole, context);
  }
  const Tensor sums = sums_of(dy, x, call.dweight.shape(), context);
  launch_rows(
      "launch of a gradient in FP8", rows_of(call.dweight, AddSums::kVector, {call.dweight, sums}),
      AddSums{strided_rows<float>(call.dweight), strided_rows<const float>(sums), call.overwrites},
      context.stream);
}

}  // namespace piton::cuda
