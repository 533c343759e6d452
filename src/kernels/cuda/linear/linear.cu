// y = x W^T and what follows it. The library's product adds the residual, the bias if it has the
// dtype of y, and GELU by tanh; other activations read the sums from scratch. Few rows have another
// kernel.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/float8/linear_float8.h"
#include "kernels/cuda/linear/few_row_product.h"
#include "kernels/cuda/linear/linear_end.cuh"
#include "kernels/cuda/product.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/scratch.h"

namespace piton::cuda {
namespace {

template <typename T, typename B>
void launch_end(const LinearForward& call, const Tensor& sums, cudaStream_t stream) {
  using End = LinearEnd<T, B>;
  launch_rows(
      "launch of linear forward, its end",
      rows_of(call.y, End::kVector, {call.y, call.preactivation, call.residual, call.bias, sums}),
      linear_end<T, B>(call, pointer<const Wide<T>>(sums)), stream);
}

}  // namespace

void execute(const LinearForward& call, const CallContext& context) {
  if (call.y.elements() == 0) return;
  PITON_ASSERT(call.weight.form == WeightForm::kRows || call.weight.form == WeightForm::kCodes,
               "cuda: linear forward of a packed weight");
  if (call.first_rows.defined()) {
    LinearForward plain = call;
    plain.weight = plain_rows(call.weight, context);
    return multiply_experts(plain, context);
  }
  if (call.float8.given()) return multiply_in_float8(call, context);
  if (has_few_rows(call)) return multiply_few_rows(call, context.stream);
  const WeightView weight = plain_rows(call.weight, context);
  Product product{.y = call.y,
                  .left = call.x,
                  .right = weight.tensor,
                  .right_transposed = true,
                  .addend = call.residual,
                  .bias = call.bias};
  const bool bias_fits = !call.bias.defined() || call.y.dtype() == call.x.dtype();
  product.activates = call.activation && !call.residual.defined() &&
                      call.y.dtype() == call.x.dtype() &&
                      activates_in_product(*call.activation, call.y, call.preactivation);
  if (product.activates) product.preactivation = call.preactivation;
  if (bias_fits && (product.activates || !call.activation))
    return context.products.multiply(product, context);
  const DType sums = call.x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  product.y = scratch(sums, call.y.shape(), context);
  product.addend = product.bias = {};
  context.products.multiply(product, context);
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_floating(call.x.dtype(), [&]<typename B>(std::type_identity<B>) {
      // y has the dtype of x, or is fp32 next to 16-bit numbers.
      if constexpr (std::is_same_v<T, B> || (std::is_same_v<T, float> && sizeof(B) == 2)) {
        launch_end<T, B>(call, product.y, context.stream);
      }
    });
  });
}

void execute(const GatedLinear& call, const CallContext& context) {
  if (call.y.elements() == 0) return;
  if (has_few_rows(call)) return multiply_few_rows(call, context.stream);
  const Tensor gate_up = scratch(call.x.dtype(), {call.x.dim(0), call.weight.out}, context);
  execute(call.product(gate_up), context);
  execute(call.end(gate_up), context);
}

}  // namespace piton::cuda
