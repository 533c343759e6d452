// Linear maps with a weight as it is stored, for many rows of x: the weight is packed for some
// columns of y at a time, once for all rows, where parts of a product would each pack what they
// read. The bits are those of a packed weight.
#include <algorithm>

#include "kernels/cpu/linear_tiles.h"

namespace piton::cpu {
namespace {

// Packed weights at a time. x is packed again for each, so few columns cost more than memory that
// is outside of the caches: with 2 MiB on one thread a fifth of the time of 512 rows.
constexpr std::int64_t kPackedBytes = std::int64_t{16} << 20;

bool packs_for_all_rows(const CpuContext& context, const LinearCall& call) {
  const WeightView& weight = call.right.weight;
  if (weight.form != WeightForm::kRows) return false;
  const std::int64_t rows = call.a.dim(0);
  if (uses_tiles(context, weight.dtype)) return amx_row_parts(context, rows, call.right.k()) > 1;
  return uses_dot(context, weight.dtype) && rows > kRowTile;
}

void packed_product(CpuContext& context, const LinearCall& call, LinearFunction product) {
  const Right& right = call.right;
  const WeightForm form = right.backward ? WeightForm::kBackward : WeightForm::kForward;
  const std::int64_t step = columns_at_a_time(right, kPackedBytes);
  for (std::int64_t begin = 0; begin < right.n(); begin += step) {
    const std::int64_t size = std::min(step, right.n() - begin);
    WeightView some{.form = form,
                    .out = right.backward ? right.weight.out : size,
                    .in = right.backward ? size : right.weight.in,
                    .dtype = right.weight.dtype};
    const std::int64_t bytes = packed_bytes(context, form, some.out, some.in, some.dtype);
    some.tensor = memory_in(context.packed, DType::kU8, {bytes});
    execute(context,
            PackWeight{.packed = some.tensor,
                       .rows = right.weight.tensor.slice(right.backward ? 1 : 0, begin, size),
                       .form = form});
    product(context, columns_of(call, {some, right.backward}, begin, size));
  }
}

}  // namespace

void uncoded_product(CpuContext& context, const LinearCall& call, LinearFunction product) {
  if (packs_for_all_rows(context, call)) return packed_product(context, call, product);
  product(context, call);
}

}  // namespace piton::cpu
