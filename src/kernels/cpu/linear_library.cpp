// Linear maps in fp32 as a grid of tiles, each one product of one thread through the library.
//
// The grid follows from the sizes of the call alone, so the result depends neither on the number of
// threads nor on where rows were cut at tile edges. A packed weight is the same grid: tile after
// tile, each in the library's layout. For 16-bit types weights are packed as fp32 and rows are
// converted tile by tile. The library's fast products want rows that are contiguous: others
// go through a tile of that kind.
#include <algorithm>

#include "kernels/cpu/linear_tiles.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kColumnTile = 256;
// Depth of one product: a head's gradient, 50 304 deep, then converts 4 MiB of rows at a time.
constexpr std::int64_t kDepthTile = 8192;

// The grid of b[k, n] and where each tile of its packed form begins.
class Grid {
 public:
  Grid(Matmul& matmul, std::int64_t n, std::int64_t k, bool packed) : n_(n), k_(k) {
    if (!packed) return;
    full_ = bytes(matmul, std::min(n, kColumnTile), std::min(k, kDepthTile));
    if (last_columns() != kColumnTile)
      edge_ = bytes(matmul, last_columns(), std::min(k, kDepthTile));
    full_low_ = bytes(matmul, std::min(n, kColumnTile), last_depth());
    edge_low_ =
        last_columns() != kColumnTile ? bytes(matmul, last_columns(), last_depth()) : full_low_;
    if (last_columns() == kColumnTile) edge_ = full_;
  }

  std::int64_t column_tiles() const { return tiles(n_, kColumnTile); }
  std::int64_t depth_tiles() const { return tiles(k_, kDepthTile); }
  std::int64_t columns(std::int64_t tile) const {
    return std::min(kColumnTile, n_ - tile * kColumnTile);
  }
  std::int64_t depth(std::int64_t tile) const {
    return std::min(kDepthTile, k_ - tile * kDepthTile);
  }

  // Column tiles follow one another within a depth tile.
  std::int64_t offset(std::int64_t depth_tile, std::int64_t column_tile) const {
    const std::int64_t row = (column_tiles() - 1) * full_ + edge_;
    const bool low = depth_tile == depth_tiles() - 1;
    return depth_tile * row + column_tile * (low ? full_low_ : full_);
  }
  std::int64_t size() const { return offset(depth_tiles() - 1, column_tiles() - 1) + edge_low_; }

 private:
  static std::int64_t bytes(Matmul& matmul, std::int64_t n, std::int64_t k) {
    return aligned(matmul.packed_bytes(n, k, Type::kF32));
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

// One tile of y = a b + bias.
class TileProduct : LinearProduct {
 public:
  TileProduct(Context& context, const LinearCall& call)
      : LinearProduct(context, call),
        grid_(context.matmul, right_.n(), right_.k(), packed_),
        converts_a_(a_.dtype() != DType::kF32 || a_.stride(0) != right_.k() ||
                    grid_.depth_tiles() > 1),
        converts_b_(!packed_ && right_.weight.dtype != DType::kF32),
        direct_(grid_.depth_tiles() == 1 && grid_.column_tiles() == 1 &&
                y_.dtype() == DType::kF32 && y_.stride(0) == right_.n() && !epilogue_.given()) {}

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
    const std::int64_t a_bytes = converts_a_ ? aligned(m * deepest * 4) : 0;
    const std::int64_t b_bytes = converts_b_ ? aligned(n * deepest * 4) : 0;
    const std::int64_t c_bytes = direct_ ? 0 : aligned(m * n * 4);
    const bool converts_bias = bias_.defined() && bias_.dtype() != DType::kF32;
    const std::int64_t bias_bytes = converts_bias ? aligned(n * 4) : 0;
    std::int64_t library_bytes = 0;
    for (std::int64_t tile = 0; tile < grid_.depth_tiles(); ++tile) {
      library_bytes = std::max(library_bytes, context_.matmul.scratch_bytes(shape(m, n, tile)));
    }
    std::byte* a_tile =
        context_.scratch.own(a_bytes + b_bytes + c_bytes + bias_bytes + library_bytes);
    std::byte* b_tile = a_tile + a_bytes;
    std::byte* c_tile = b_tile + b_bytes;
    std::byte* bias_tile = c_tile + c_bytes;
    std::byte* library = bias_tile + bias_bytes;

    const void* bias = nullptr;
    if (bias_.defined()) {
      bias = bias_.raw() + column * size_bytes(bias_.dtype());
      if (converts_bias) {
        context_.vector.convert(bias_tile, Type::kF32, bias, type_of(bias_.dtype()), n);
        bias = bias_tile;
      }
    }
    void* c = direct_ ? at(y_, row, column) : c_tile;
    for (std::int64_t tile = 0; tile < grid_.depth_tiles(); ++tile) {
      const std::int64_t k = grid_.depth(tile);
      const std::int64_t first = tile * kDepthTile;
      const void* a = at(a_, row, first);
      if (converts_a_) {
        convert_rows(context_, a_tile, Type::kF32, k, a_, row, first, m, k);
        a = a_tile;
      }
      context_.matmul.run(shape(m, n, tile), a,
                          right(tile, column_tile, first, column, k, n, b_tile), bias, c, library);
    }
    if (direct_) return;
    if (epilogue_.given()) {
      return epilogue_.finish(context_, y_, reinterpret_cast<const float*>(c_tile), n, row, column,
                              m, n);
    }
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
    const std::int64_t columns = right_.backward ? n : k;
    convert_rows(context_, tile, Type::kF32, columns, weight, row, from, right_.backward ? k : n,
                 columns);
    return tile;
  }

  ProductShape shape(std::int64_t m, std::int64_t n, std::int64_t depth_tile) const {
    const std::int64_t k = grid_.depth(depth_tile);
    return {.m = m,
            .n = n,
            .k = k,
            .in = Type::kF32,
            .out = Type::kF32,
            .a_form = Form::kPlain,
            .b_form = packed_           ? Form::kPacked
                      : right_.backward ? Form::kPlain
                                        : Form::kTransposed,
            .a_stride = converts_a_ ? k : a_.stride(0),
            .b_stride = packed_       ? 0
                        : converts_b_ ? (right_.backward ? n : k)
                                      : right_.weight.tensor.stride(0),
            .c_stride = direct_ ? y_.stride(0) : n,
            .bias = bias_.defined() && depth_tile == 0,
            .accumulate = depth_tile > 0};
  }

  Grid grid_;
  bool converts_a_;
  bool converts_b_;
  bool direct_;
};

}  // namespace

std::int64_t library_packed_bytes(Context& context, std::int64_t n, std::int64_t k) {
  return Grid(context.matmul, n, k, true).size();
}

void library_pack(Context& context, const PackWeight& call) {
  const bool backward = call.form == WeightForm::kBackward;
  const std::int64_t n = call.rows.dim(backward ? 1 : 0);
  const std::int64_t k = call.rows.dim(backward ? 0 : 1);
  const bool converts = call.rows.dtype() != DType::kF32;
  const Form form = backward ? Form::kPlain : Form::kTransposed;
  const Grid grid(context.matmul, n, k, true);
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
      std::byte* tile = context.scratch.own(columns * depth * 4);
      stride = backward ? columns : depth;
      convert_rows(context, tile, Type::kF32, stride, call.rows, row, column,
                   backward ? depth : columns, stride);
      from = tile;
    }
    context.matmul.pack(columns, depth, Type::kF32, form, stride, from,
                        call.packed.raw() + grid.offset(depth_tile, column_tile));
  });
}

void library_product(Context& context, const LinearCall& call) {
  const TileProduct product(context, call);
  context.threads.run(product.parts(), product);
}

}  // namespace piton::cpu
