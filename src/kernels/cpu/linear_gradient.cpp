// The gradient of a weight: tiles of dW, each the whole sum over rows by one thread, rows in fixed
// stretches.
#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/linear.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kOutTile = 256;
constexpr std::int64_t kInTile = 768;
constexpr std::int64_t kStretch = 1024;  // rows of one product; the sums of stretches add in order

std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }
std::int64_t width_of(Type type) { return type == Type::kF32 ? 4 : 2; }

// Columns [column, column + columns) of `from` as `type`; itself where nothing is to be converted.
const void* columns_of(const Context& context, const Tensor& from, Type type, std::int64_t row,
                       std::int64_t column, std::int64_t rows, std::int64_t columns, std::byte* tile,
                       std::int64_t* stride) {
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

}  // namespace

void execute(Context& context, const LinearBackwardWeight& call) {
  const std::int64_t n = call.x.dim(0);
  if (n == 0) return;
  const Type type = call.x.dtype() == DType::kBF16 && context.has_bf16_products() ? Type::kBF16
                                                                                  : Type::kF32;
  const std::int64_t in_tiles = (call.dweight.dim(1) + kInTile - 1) / kInTile;
  const std::int64_t out_tiles = (call.dweight.dim(0) + kOutTile - 1) / kOutTile;
  context.threads.run(in_tiles * out_tiles, [&](std::int64_t part) {
    add_tile(context, call, type, part / in_tiles * kOutTile, part % in_tiles * kInTile);
  });
  if (!call.dbias.defined()) return;
  context.ranges(call.dbias.elements(), 128, [&](std::int64_t begin, std::int64_t end) {
    const Matrix dy{call.dy.raw() + begin * size_bytes(call.dy.dtype()), type_of(call.dy.dtype()),
                    call.dy.stride(0)};
    context.vector.column_sums(call.dbias.data<float>() + begin, dy, n, end - begin);
  });
}

}  // namespace piton::cpu
