// y = x W^T and what follows it. The library's product adds the residual, and the bias if it has
// the dtype of y; an activation reads the sums from scratch. Few rows have another kernel.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/few_row_product.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_end.cuh"
#include "kernels/cuda/product.h"
#include "kernels/cuda/scratch.h"

namespace piton::cuda {

void execute(const LinearForward& call, const CallContext& context) {
  if (call.y.elements() == 0) return;
  PITON_ASSERT(call.weight.form == WeightForm::kRows || call.weight.form == WeightForm::kCodes,
               "cuda: linear forward of a packed weight");
  if (has_few_rows(call)) return multiply_few_rows(call, context.stream);
  const WeightView weight = plain_rows(call.weight, context);
  Product product{.y = call.y,
                  .left = call.x,
                  .right = weight.tensor,
                  .right_transposed = true,
                  .addend = call.residual,
                  .bias = call.bias};
  const bool fused = !call.activation && (!call.bias.defined() || call.y.dtype() == call.x.dtype());
  if (fused) return context.products.multiply(product, context.stream);
  const DType sums = call.x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  product.y = scratch(sums, call.y.shape(), call.y.place(), context.stream);
  product.addend = product.bias = {};
  context.products.multiply(product, context.stream);
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_floating(call.x.dtype(), [&]<typename B>(std::type_identity<B>) {
      // y has the dtype of x, or is fp32 next to 16-bit numbers.
      if constexpr (std::is_same_v<T, B> || (std::is_same_v<T, float> && sizeof(B) == 2)) {
        launch_elements("launch of linear forward, its end", call.y.elements(),
                        linear_end<T, B>(call, pointer<const Wide<T>>(product.y)), context.stream);
      }
    });
  });
}

}  // namespace piton::cuda
