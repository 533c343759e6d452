// Linear maps by the bf16 dot product. Each element of y is one sum over k in stretches of
// kDepthTile, so neither threads nor row counts nor the partition affect its bits. An fp32 left
// side (the gradient of logits) is rounded to bf16 tile by tile.
#include <algorithm>

#include "kernels/cpu/linear_tiles.h"

namespace piton::cpu {
namespace {

// A panel of the right side, 1024 deep, is 128 KiB: it stays in the second-level cache while all
// rows of a tile are multiplied by it.
constexpr std::int64_t kDepthTile = 1024;
constexpr std::int64_t kColumnTile = 4 * kPanel;
// Rows that need conversion are converted once for this many columns.
constexpr std::int64_t kConvertedColumnTile = 16 * kPanel;

class DotProduct : LinearProduct {
 public:
  DotProduct(CpuContext& context, const LinearCall& call)
      : LinearProduct(context, call),
        k_(right_.k()),
        converts_(a_.dtype() != DType::kBF16 || k_ % 2 != 0),
        narrow_(y_.dtype() != DType::kF32),
        column_tile_(converts_               ? kConvertedColumnTile
                     : a_.dim(0) <= kRowTile ? kPanel
                                             : kColumnTile) {}

  std::int64_t parts() const {
    return tiles(right_.n(), column_tile_) * tiles(a_.dim(0), kRowTile);
  }

  // Rows are the inner direction: a tile of the weight is read from memory once, and the next rows
  // find it in the second-level cache.
  void operator()(std::int64_t part) const {
    const std::int64_t row_tiles = tiles(a_.dim(0), kRowTile);
    run(part % row_tiles * kRowTile, part / row_tiles * column_tile_);
  }

 private:
  void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t m = std::min(kRowTile, a_.dim(0) - row);
    const std::int64_t n = std::min(column_tile_, right_.n() - column);
    const std::int64_t deep = std::min(kDepthTile, k_ + k_ % 2);
    const bool sums = (narrow_ && k_ > kDepthTile) || epilogue_.given();
    const std::int64_t a_bytes = converts_ ? aligned(m * deep * 2) : 0;
    const std::int64_t b_bytes = packed_ ? 0 : aligned(panel_words(n, deep) * 4);
    const std::int64_t sums_bytes = sums ? aligned(m * n * 4) : 0;
    std::byte* a_tile = context_.scratch.own(a_bytes + b_bytes + sums_bytes + aligned(n * 4));
    auto* b_tile = reinterpret_cast<Pair*>(a_tile + a_bytes);
    auto* sum_tile = reinterpret_cast<float*>(a_tile + a_bytes + b_bytes);
    const float* bias =
        bias_of(reinterpret_cast<float*>(a_tile + a_bytes + b_bytes + sums_bytes), column, n);
    for (std::int64_t first = 0; first < k_; first += kDepthTile) {
      const std::int64_t k = std::min(kDepthTile, k_ - first);
      const bool last = first + k == k_;
      const float* so_far = sums ? sum_tile : reinterpret_cast<const float*>(at(y_, row, column));
      const std::int64_t so_far_stride = sums ? n : y_.stride(0);
      DotOutput c{.data = at(y_, row, column), .type = type_of(y_.dtype()), .stride = y_.stride(0)};
      if (sums && (!last || epilogue_.given()))
        c = {.data = sum_tile, .type = Type::kF32, .stride = n};
      if (first > 0) {
        c.addend = so_far;
        c.addend_stride = so_far_stride;
      }
      if (last) c.bias = bias;
      const auto* a = reinterpret_cast<const std::uint16_t*>(at(a_, row, first));
      std::int64_t stride = a_.stride(0);
      if (converts_) {
        a = convert(a_tile, row, first, m, k);
        stride = k + k % 2;
      }
      std::int64_t b_panel = 0;
      const Pair* b = right(column, first, n, k, b_tile, &b_panel);
      context_.dot->product(m, n, (k + 1) / 2, a, stride, 2, b, b_panel, packed_ ? first / 2 : 0,
                            c);
    }
    if (epilogue_.given()) epilogue_.finish(context_, y_, sum_tile, n, row, column, m, n);
  }

  // Rows as bf16, padded to pairs.
  const std::uint16_t* convert(std::byte* to, std::int64_t row, std::int64_t first, std::int64_t m,
                               std::int64_t k) const {
    auto* tile = reinterpret_cast<std::uint16_t*>(to);
    const std::int64_t stride = k + k % 2;
    convert_rows(context_, tile, Type::kBF16, stride, a_, row, first, m, k);
    if (k % 2 != 0) {
      for (std::int64_t r = 0; r < m; ++r) tile[r * stride + k] = 0;
    }
    return tile;
  }

  const Pair* right(std::int64_t column, std::int64_t first, std::int64_t n, std::int64_t k,
                    Pair* tile, std::int64_t* b_panel) const {
    const Tensor& weight = right_.weight.tensor;
    if (packed_) {
      const std::int64_t pairs = (k_ + 1) / 2;
      *b_panel = pairs * kPanel;
      return reinterpret_cast<const Pair*>(weight.raw()) + column * pairs;
    }
    *b_panel = (k + 1) / 2 * kPanel;
    if (right_.backward) {
      context_.dot->pack_rows(tile, {at(weight, first, column), Type::kBF16, weight.stride(0)}, k,
                              n);
    } else {
      context_.dot->pack_columns(tile, {at(weight, column, first), Type::kBF16, weight.stride(0)},
                                 k, n);
    }
    return tile;
  }

  std::int64_t k_;
  bool converts_;
  bool narrow_;
  std::int64_t column_tile_;
};

// Columns of b packed by one part: whole panels.
constexpr std::int64_t kPackTile = 2 * kPanel;

}  // namespace

std::int64_t dot_packed_bytes(std::int64_t n, std::int64_t k) { return panel_words(n, k) * 4; }

void dot_pack(CpuContext& context, const PackWeight& call) {
  const bool backward = call.form == WeightForm::kBackward;
  const std::int64_t n = call.rows.dim(backward ? 1 : 0);
  const std::int64_t k = call.rows.dim(backward ? 0 : 1);
  context.ranges(n, kPackTile, [&](std::int64_t begin, std::int64_t end) {
    auto* panels = reinterpret_cast<Pair*>(call.packed.raw()) + begin * ((k + 1) / 2);
    const Matrix rows{backward ? at(call.rows, 0, begin) : at(call.rows, begin, 0), Type::kBF16,
                      call.rows.stride(0)};
    if (backward) {
      context.dot->pack_rows(panels, rows, k, end - begin);
    } else {
      context.dot->pack_columns(panels, rows, k, end - begin);
    }
  });
}

void dot_product(CpuContext& context, const LinearCall& call) {
  if (is_skinny(call)) return skinny_products(context, {&call, 1});
  const DotProduct product(context, call);
  context.threads.run(product.parts(), product);
}

}  // namespace piton::cpu
