// Linear maps: which way each goes.
#include "kernels/linear.h"

#include "kernels/cpu/linear_tiles.h"

namespace piton::cpu {

std::int64_t row_tile() { return kRowTile; }

std::int64_t packed_bytes(Context& context, WeightForm form, std::int64_t out, std::int64_t in,
                          DType dtype) {
  if (form == WeightForm::kRows || dtype == DType::kF64 || out == 0 || in == 0) return 0;
  const std::int64_t n = form == WeightForm::kBackward ? in : out;
  const std::int64_t k = form == WeightForm::kBackward ? out : in;
  return uses_dot(context, dtype) ? dot_packed_bytes(n, k) : library_packed_bytes(context, n, k);
}

void execute(Context& context, const PackWeight& call) {
  const std::int64_t wanted =
      packed_bytes(context, call.form, call.rows.dim(0), call.rows.dim(1), call.rows.dtype());
  PITON_ASSERT(call.packed.bytes() == wanted, "pack weight: {} bytes, wanted {}",
               call.packed.bytes(), wanted);
  if (uses_dot(context, call.rows.dtype())) return dot_pack(context, call);
  library_pack(context, call);
}

void execute(Context& context, const LinearForward& call) {
  if (call.x.dim(0) == 0) return;
  const Right right{call.weight, false};
  const Epilogue epilogue{call.residual, call.activation, call.preactivation};
  const auto product = uses_dot(context, call.weight.dtype) ? dot_product : library_product;
  product(context, call.y, call.x, right, call.bias, epilogue);
}

void execute(Context& context, const LinearBackwardInput& call) {
  if (call.dy.dim(0) == 0) return;
  const Right right{call.weight, true};
  const auto product = uses_dot(context, call.weight.dtype) ? dot_product : library_product;
  product(context, call.dx, call.dy, right, {}, {});
}

}  // namespace piton::cpu
