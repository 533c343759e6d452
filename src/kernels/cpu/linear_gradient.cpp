// The gradient of a weight: tiles of dW, each the whole sum over rows by one thread, rows in fixed
// stretches.
#include <algorithm>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/linear.h"

namespace piton::cpu {
namespace {

// By the dot product: dW[out, in] = dy^T x with dy^T as the left side and x as the right. x is
// packed once a stretch for all; each part packs the columns of dy that only it reads. 192 rows of
// dW, 1024 deep, are 384 KiB of dy^T beside a panel of x of 128 KiB.
constexpr std::int64_t kDotOutTile = 32 * kLeftPanel;
constexpr std::int64_t kDotStretch = 1024;

constexpr std::int64_t kOutTile = 256;
constexpr std::int64_t kInTile = 768;
constexpr std::int64_t kStretch = 1024;  // rows of one product; the sums of stretches add in order

// Columns [column, column + columns) of `from` as `type`; itself where nothing is to be converted.
const void* columns_of(const Context& context, const Tensor& from, Type type, std::int64_t row,
                       std::int64_t column, std::int64_t rows, std::int64_t columns,
                       std::byte* tile, std::int64_t* stride) {
  const std::int64_t width = size_bytes(from.dtype());
  const std::byte* first = from.raw() + (row * from.stride(0) + column) * width;
  *stride = from.stride(0);
  if (type_of(from.dtype()) == type) return first;
  *stride = columns;
  for (std::int64_t r = 0; r < rows; ++r) {
    context.vector.convert(tile + r * columns * width_of(type), type,
                           first + r * from.stride(0) * width, type_of(from.dtype()), columns);
  }
  return tile;
}

void add_tile(Context& context, const LinearBackwardWeight& call, Type type, std::int64_t out,
              std::int64_t in) {
  const std::int64_t rows = call.x.dim(0);
  const std::int64_t m = std::min(kOutTile, call.dweight.dim(0) - out);
  const std::int64_t n = std::min(kInTile, call.dweight.dim(1) - in);
  const std::int64_t dy_bytes = aligned(kStretch * m * width_of(type));
  const std::int64_t x_bytes = aligned(kStretch * n * width_of(type));
  for (std::int64_t row = 0; row < rows; row += kStretch) {
    const std::int64_t k = std::min(kStretch, rows - row);
    ProductShape shape{.m = m,
                       .n = n,
                       .k = k,
                       .in = type,
                       .out = Type::kF32,
                       .a_form = Form::kTransposed,
                       .b_form = Form::kPlain,
                       .a_stride = type_of(call.dy.dtype()) == type ? call.dy.stride(0) : m,
                       .b_stride = type_of(call.x.dtype()) == type ? call.x.stride(0) : n,
                       .c_stride = call.dweight.stride(0),
                       .accumulate = true};
    std::byte* tile = context.scratch.own(dy_bytes + x_bytes + context.matmul.scratch_bytes(shape));
    std::int64_t stride = 0;
    const void* dy = columns_of(context, call.dy, type, row, out, k, m, tile, &stride);
    const void* x = columns_of(context, call.x, type, row, in, k, n, tile + dy_bytes, &stride);
    context.matmul.run(shape, dy, x, nullptr,
                       call.dweight.data<float>() + out * call.dweight.stride(0) + in,
                       tile + dy_bytes + x_bytes);
  }
}

void add_by_library(Context& context, const LinearBackwardWeight& call) {
  const std::int64_t in_tiles = tiles(call.dweight.dim(1), kInTile);
  context.threads.run(in_tiles * tiles(call.dweight.dim(0), kOutTile), [&](std::int64_t part) {
    add_tile(context, call, Type::kF32, part / in_tiles * kOutTile, part % in_tiles * kInTile);
  });
}

void add_by_dot(Context& context, const LinearBackwardWeight& call) {
  const std::int64_t rows = call.x.dim(0);
  const std::int64_t out = call.dweight.dim(0);
  const std::int64_t in = call.dweight.dim(1);
  const std::int64_t deep = std::min(rows, kDotStretch);
  auto* x_panels = reinterpret_cast<Pair*>(context.scratch.shared(panel_words(in, deep) * 4));
  for (std::int64_t row = 0; row < rows; row += kDotStretch) {
    const std::int64_t k = std::min(kDotStretch, rows - row);
    const std::int64_t pairs = (k + 1) / 2;
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
      context.dot->product_packed(
          m, in, pairs, left, pairs, x_panels, pairs * kPanel, 0,
          {.data = sums, .stride = stride, .addend = sums, .addend_stride = stride});
    });
  }
}

}  // namespace

void execute(Context& context, const LinearBackwardWeight& call) {
  const std::int64_t n = call.x.dim(0);
  if (n == 0) return;
  if (uses_tiles(context, call.x.dtype())) {
    amx_add_weight_gradient(context, call);
  } else if (uses_dot(context, call.x.dtype())) {
    add_by_dot(context, call);
  } else {
    add_by_library(context, call);
  }
  if (!call.dbias.defined()) return;
  context.ranges(call.dbias.elements(), 128, [&](std::int64_t begin, std::int64_t end) {
    const Matrix dy{call.dy.raw() + begin * size_bytes(call.dy.dtype()), type_of(call.dy.dtype()),
                    call.dy.stride(0)};
    context.vector.column_sums(call.dbias.data<float>() + begin, dy, n, end - begin);
  });
}

}  // namespace piton::cpu
