// Linear maps as a grid of tiles, each one product of one thread.
//
// The grid follows from the sizes of the call alone, so the result depends neither on the number of
// threads nor on where rows were cut. A packed weight is the same grid: tile after tile, each in the
// library's layout. Without bf16 dot products, and for fp16, products run in fp32: weights are packed
// as fp32 and rows are converted tile by tile.
#include "kernels/linear.h"

#include <algorithm>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kRowTile = 128;
constexpr std::int64_t kColumnTile = 256;
// Depth of one product. A head's gradient, 50 304 deep, then converts 2 MiB of rows at a time.
constexpr std::int64_t kDepthTile = 8192;

std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }
std::int64_t tiles(std::int64_t n, std::int64_t tile) { return (n + tile - 1) / tile; }
std::int64_t width_of(Type type) { return type == Type::kF32 ? 4 : 2; }

Type product_type(const Context& context, DType dtype) {
  return dtype == DType::kBF16 && context.has_bf16_products() ? Type::kBF16 : Type::kF32;
}

// The grid of b[k, n] and where each tile of its packed form begins.
class Grid {
 public:
  Grid(Matmul& matmul, std::int64_t n, std::int64_t k, Type type, bool packed)
      : n_(n), k_(k) {
    if (!packed) return;
    full_ = bytes(matmul, std::min(n, kColumnTile), std::min(k, kDepthTile), type);
    if (last_columns() != kColumnTile) edge_ = bytes(matmul, last_columns(), std::min(k, kDepthTile), type);
    full_low_ = bytes(matmul, std::min(n, kColumnTile), last_depth(), type);
    edge_low_ = last_columns() != kColumnTile ? bytes(matmul, last_columns(), last_depth(), type) : full_low_;
    if (last_columns() == kColumnTile) edge_ = full_;
  }

  std::int64_t column_tiles() const { return tiles(n_, kColumnTile); }
  std::int64_t depth_tiles() const { return tiles(k_, kDepthTile); }
  std::int64_t columns(std::int64_t tile) const { return std::min(kColumnTile, n_ - tile * kColumnTile); }
  std::int64_t depth(std::int64_t tile) const { return std::min(kDepthTile, k_ - tile * kDepthTile); }

  // Column tiles follow one another within a depth tile.
  std::int64_t offset(std::int64_t depth_tile, std::int64_t column_tile) const {
    const std::int64_t row = (column_tiles() - 1) * full_ + edge_;
    const bool low = depth_tile == depth_tiles() - 1;
    return depth_tile * row + column_tile * (low ? full_low_ : full_);
  }
  std::int64_t size() const {
    return offset(depth_tiles() - 1, column_tiles() - 1) + edge_low_;
  }

 private:
  static std::int64_t bytes(Matmul& matmul, std::int64_t n, std::int64_t k, Type type) {
    return aligned(matmul.packed_bytes(n, k, type));
  }
  std::int64_t last_columns() const { return columns(column_tiles() - 1); }
  std::int64_t last_depth() const { return depth(depth_tiles() - 1); }

  std::int64_t n_;
  std::int64_t k_;
  std::int64_t full_ = 0;      // bytes of a tile
  std::int64_t edge_ = 0;      // of one in the last column
  std::int64_t full_low_ = 0;  // of one in the last depth
  std::int64_t edge_low_ = 0;
};

// b of y = a b: W^T forward, W backward.
struct Right {
  const WeightView& weight;
  bool backward;
  std::int64_t n() const { return backward ? weight.in : weight.out; }
  std::int64_t k() const { return backward ? weight.out : weight.in; }
  // The form of plain rows [out, in] as b[k, n].
  Form form() const { return backward ? Form::kPlain : Form::kTransposed; }
};

std::byte* at(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  return tensor.raw() + (row * tensor.stride(0) + column) * size_bytes(tensor.dtype());
}

// `rows` x `columns` of `from` into `to`, rows one after another.
void convert_rows(const Context& context, void* to, Type type, const Tensor& from, std::int64_t row,
                  std::int64_t column, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    context.vector.convert(static_cast<std::byte*>(to) + r * columns * width_of(type), type,
                           at(from, row + r, column), type_of(from.dtype()), columns);
  }
}

// One tile of y = a b + bias.
class TileProduct {
 public:
  TileProduct(Context& context, const Tensor& y, const Tensor& a, const Right& right,
              const Tensor& bias)
      : context_(context),
        y_(y),
        a_(a),
        right_(right),
        bias_(bias),
        type_(product_type(context, right.weight.dtype)),
        packed_(right.weight.form != WeightForm::kRows),
        grid_(context.matmul, right.n(), right.k(), type_, packed_),
        converts_a_(type_of(a.dtype()) != type_),
        converts_b_(!packed_ && type_of(right.weight.dtype) != type_),
        direct_(grid_.depth_tiles() == 1 &&
                (y.dtype() == DType::kF32 || type_of(y.dtype()) == type_)) {}

  std::int64_t parts() const { return grid_.column_tiles() * tiles(a_.dim(0), kRowTile); }

  // Rows are the inner direction: a tile of the weight is read from memory once and then met in the
  // second-level cache by the next rows.
  void operator()(std::int64_t part) const {
    const std::int64_t row_tiles = tiles(a_.dim(0), kRowTile);
    run(part % row_tiles * kRowTile, part / row_tiles);
  }

 private:
  void run(std::int64_t row, std::int64_t column_tile) const {
    const std::int64_t m = std::min(kRowTile, a_.dim(0) - row);
    const std::int64_t n = grid_.columns(column_tile);
    const std::int64_t column = column_tile * kColumnTile;
    const std::int64_t deepest = grid_.depth(0);
    const std::int64_t a_bytes = converts_a_ ? aligned(m * deepest * width_of(type_)) : 0;
    const std::int64_t b_bytes = converts_b_ ? aligned(n * deepest * width_of(type_)) : 0;
    const std::int64_t c_bytes = direct_ ? 0 : aligned(m * n * 4);
    const bool converts_bias = bias_.defined() && type_of(bias_.dtype()) != type_;
    const std::int64_t bias_bytes = converts_bias ? aligned(n * 4) : 0;
    std::int64_t library_bytes = 0;
    for (std::int64_t tile = 0; tile < grid_.depth_tiles(); ++tile) {
      library_bytes = std::max(library_bytes, context_.matmul.scratch_bytes(shape(m, n, tile)));
    }
    std::byte* a_tile = context_.scratch.own(a_bytes + b_bytes + c_bytes + bias_bytes + library_bytes);
    std::byte* b_tile = a_tile + a_bytes;
    std::byte* c_tile = b_tile + b_bytes;
    std::byte* bias_tile = c_tile + c_bytes;
    std::byte* library = bias_tile + bias_bytes;

    const void* bias = nullptr;
    if (bias_.defined()) {
      bias = bias_.raw() + column * size_bytes(bias_.dtype());
      if (converts_bias) {
        context_.vector.convert(bias_tile, type_, bias, type_of(bias_.dtype()), n);
        bias = bias_tile;
      }
    }
    void* c = direct_ ? at(y_, row, column) : c_tile;
    for (std::int64_t tile = 0; tile < grid_.depth_tiles(); ++tile) {
      const std::int64_t k = grid_.depth(tile);
      const std::int64_t first = tile * kDepthTile;
      const void* a = at(a_, row, first);
      if (converts_a_) {
        convert_rows(context_, a_tile, type_, a_, row, first, m, k);
        a = a_tile;
      }
      context_.matmul.run(shape(m, n, tile), a, right(tile, column_tile, first, column, k, n, b_tile),
                          bias, c, library);
    }
    if (direct_) return;
    for (std::int64_t r = 0; r < m; ++r) {
      context_.vector.convert(at(y_, row + r, column), type_of(y_.dtype()), c_tile + r * n * 4,
                              Type::kF32, n);
    }
  }

  const void* right(std::int64_t depth_tile, std::int64_t column_tile, std::int64_t first,
                    std::int64_t column, std::int64_t k, std::int64_t n, std::byte* tile) const {
    const Tensor& weight = right_.weight.tensor;
    if (packed_) return weight.raw() + grid_.offset(depth_tile, column_tile);
    const std::int64_t row = right_.backward ? first : column;
    const std::int64_t from = right_.backward ? column : first;
    if (!converts_b_) return at(weight, row, from);
    convert_rows(context_, tile, type_, weight, row, from, right_.backward ? k : n,
                 right_.backward ? n : k);
    return tile;
  }

  ProductShape shape(std::int64_t m, std::int64_t n, std::int64_t depth_tile) const {
    const std::int64_t k = grid_.depth(depth_tile);
    return {.m = m,
            .n = n,
            .k = k,
            .in = type_,
            .out = direct_ ? type_of(y_.dtype()) : Type::kF32,
            .a_form = Form::kPlain,
            .b_form = packed_ ? Form::kPacked : right_.form(),
            .a_stride = converts_a_ ? k : a_.stride(0),
            .b_stride = packed_       ? 0
                        : converts_b_ ? (right_.backward ? n : k)
                                      : right_.weight.tensor.stride(0),
            .c_stride = direct_ ? y_.stride(0) : n,
            .bias = bias_.defined() && depth_tile == 0,
            .bias_type = bias_.defined() ? type_ : Type::kF32,
            .accumulate = depth_tile > 0};
  }

  Context& context_;
  const Tensor& y_;
  const Tensor& a_;
  const Right& right_;
  const Tensor& bias_;
  Type type_;
  bool packed_;
  Grid grid_;
  bool converts_a_;
  bool converts_b_;
  bool direct_;
};

}  // namespace

std::int64_t row_tile() { return kRowTile; }

std::int64_t packed_bytes(Context& context, WeightForm form, std::int64_t out, std::int64_t in,
                          DType dtype) {
  if (form == WeightForm::kRows || dtype == DType::kF64 || out == 0 || in == 0) return 0;
  const bool backward = form == WeightForm::kBackward;
  return Grid(context.matmul, backward ? in : out, backward ? out : in,
              product_type(context, dtype), true)
      .size();
}

void execute(Context& context, const PackWeight& call) {
  const bool backward = call.form == WeightForm::kBackward;
  const std::int64_t n = call.rows.dim(backward ? 1 : 0);
  const std::int64_t k = call.rows.dim(backward ? 0 : 1);
  const Type type = product_type(context, call.rows.dtype());
  const bool converts = type_of(call.rows.dtype()) != type;
  const Form form = backward ? Form::kPlain : Form::kTransposed;
  const Grid grid(context.matmul, n, k, type, true);
  PITON_ASSERT(call.packed.bytes() == grid.size(), "pack weight: {} bytes, wanted {}",
               call.packed.bytes(), grid.size());
  context.threads.run(grid.column_tiles() * grid.depth_tiles(), [&](std::int64_t part) {
    const std::int64_t column_tile = part % grid.column_tiles();
    const std::int64_t depth_tile = part / grid.column_tiles();
    const std::int64_t columns = grid.columns(column_tile);
    const std::int64_t depth = grid.depth(depth_tile);
    const std::int64_t row = backward ? depth_tile * kDepthTile : column_tile * kColumnTile;
    const std::int64_t column = backward ? column_tile * kColumnTile : depth_tile * kDepthTile;
    const void* from = at(call.rows, row, column);
    std::int64_t stride = call.rows.stride(0);
    if (converts) {
      std::byte* tile = context.scratch.own(columns * depth * width_of(type));
      stride = backward ? columns : depth;
      convert_rows(context, tile, type, call.rows, row, column, backward ? depth : columns, stride);
      from = tile;
    }
    context.matmul.pack(columns, depth, type, form, stride, from,
                        call.packed.raw() + grid.offset(depth_tile, column_tile));
  });
}

void execute(Context& context, const LinearForward& call) {
  if (call.x.dim(0) == 0) return;
  const Right right{call.weight, false};
  const TileProduct product(context, call.y, call.x, right, call.bias);
  context.threads.run(product.parts(), product);
}

void execute(Context& context, const LinearBackwardInput& call) {
  if (call.dy.dim(0) == 0) return;
  const Right right{call.weight, true};
  const Tensor no_bias;
  const TileProduct product(context, call.dx, call.dy, right, no_bias);
  context.threads.run(product.parts(), product);
}

}  // namespace piton::cpu
