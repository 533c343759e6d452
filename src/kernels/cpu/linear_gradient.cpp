// The gradient of a weight: choice of the implementation, tiles of dW by the dot product, and the
// bias. One thread sums a tile over all rows, in fixed stretches of rows.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/experts.h"
#include "kernels/linear.h"

namespace piton::cpu {
namespace {

// dW[out, in] = dy^T x by the dot product, with dy^T as the left side and x as the right. x is
// packed once per stretch for all parts; each part packs the columns of dy that only it reads. 192
// rows of dW, 1024 deep, are 384 KiB of dy^T, next to a panel of x of 128 KiB.
constexpr std::int64_t kDotOutTile = 32 * kLeftPanel;
constexpr std::int64_t kDotStretch = 1024;

void add_by_dot(CpuContext& context, const LinearBackwardWeight& call) {
  const std::int64_t rows = call.x.dim(0);
  const std::int64_t out = call.dweight.dim(0);
  const std::int64_t in = call.dweight.dim(1);
  const std::int64_t deep = std::min(rows, kDotStretch);
  auto* x_panels = reinterpret_cast<Pair*>(context.scratch.shared(panel_words(in, deep) * 4));
  for (std::int64_t row = 0; row < rows; row += kDotStretch) {
    const std::int64_t k = std::min(kDotStretch, rows - row);
    const std::int64_t pairs = (k + 1) / 2;
    const bool adds = row > 0 || !call.overwrites;
    context.ranges(in, kPanel, [&](std::int64_t begin, std::int64_t end) {
      const Matrix x{at(call.x, row, begin), Type::kBF16, call.x.stride(0)};
      context.dot->pack_rows(x_panels + begin * pairs, x, k, end - begin);
    });
    context.ranges(out, kDotOutTile, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t m = end - begin;
      auto* left = reinterpret_cast<Pair*>(
          context.scratch.own(tiles(m, kLeftPanel) * kLeftPanel * pairs * 4));
      context.dot->pack_left(
          left, {at(call.dy, row, begin), type_of(call.dy.dtype()), call.dy.stride(0)}, k, m);
      auto* sums = reinterpret_cast<float*>(at(call.dweight, begin, 0));
      const std::int64_t stride = call.dweight.stride(0);
      context.dot->product_packed(m, in, pairs, left, pairs, x_panels, pairs * kPanel, 0,
                                  {.data = sums,
                                   .stride = stride,
                                   .addend = adds ? sums : nullptr,
                                   .addend_stride = stride});
    });
  }
}

void add_bias_gradient(CpuContext& context, const LinearBackwardWeight& call) {
  if (!call.dbias.defined()) return;
  context.ranges(call.dbias.elements(), 128, [&](std::int64_t begin, std::int64_t end) {
    const Matrix dy{call.dy.raw() + begin * size_bytes(call.dy.dtype()), type_of(call.dy.dtype()),
                    call.dy.stride(0)};
    context.vector.column_sums(call.dbias.data<float>() + begin, dy, call.dy.dim(0), end - begin);
  });
}

}  // namespace

void execute(CpuContext& context, const LinearBackwardWeight& call) {
  if (call.float8.given() && call.x.dim(0) > 0) {
    add_bias_gradient(context, call);
    return add_in_float8(context, call);
  }
  if (call.first_rows.defined()) {
    return for_each_expert(call, call.x.dim(0),
                           [&](const LinearBackwardWeight& part) { execute(context, part); });
  }
  const std::int64_t n = call.x.dim(0);
  if (n == 0) {
    if (call.overwrites && call.dweight.elements() > 0) {
      std::memset(call.dweight.raw(), 0, static_cast<std::size_t>(call.dweight.bytes()));
    }
    return;
  }
  if (uses_tiles(context, call.x.dtype())) {
    amx_add_weight_gradient(context, call);
  } else if (uses_dot(context, call.x.dtype())) {
    add_by_dot(context, call);
  } else {
    panel_add_weight_gradient(context, call);
  }
  add_bias_gradient(context, call);
}

}  // namespace piton::cpu
