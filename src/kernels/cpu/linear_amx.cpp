// Linear maps by tile products. Every element is one chain over k in order (amx/table.h), so
// neither threads nor row counts nor the way in which work is cut here touch its bits.
//
// A part packs some rows of the left side so that they stay in the second-level cache, and the
// right side passes by them in strips: the next strip is brought there while one is multiplied.
#include <algorithm>
#include <limits>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/linear.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kStrip = kTilePair;  // columns
// k of one packing of the left side; beyond it the sums of a part wait in fp32.
constexpr std::int64_t kDepth = 1024;
// Rows of a part: 512, 1024 deep, are half of the 2 MiB of the second-level cache. The right side
// comes through once a part, which costs as much as some rows more: with 256 rows a sixth of the
// speed, measured where it comes from the third level.
constexpr std::int64_t kMostRows = 512;
constexpr std::int64_t kFewestRows = 128;
constexpr std::int64_t kRowsOfPassing = 96;
// The columns of the smallest part: for many rows so that packing them pays, for few so that a part
// is worth handing over.
constexpr std::int64_t kPartColumns = 256;
constexpr std::int64_t kPartWeightBytes = 128 << 10;

std::int64_t up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// Rows of a part, a multiple of a group, so that threads end together. How work is cut does not
// touch its bits, so the number of threads may have a say.
std::int64_t rows_of_part(const Context& context, std::int64_t rows) {
  std::int64_t best = kMostRows;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t part = kMostRows; part >= kFewestRows; part -= kTilePair) {
    const std::int64_t turns = tiles(tiles(rows, part), context.threads.threads());
    const std::int64_t cost = turns * (part + kRowsOfPassing);
    if (cost < least) {
      best = part;
      least = cost;
    }
  }
  return best;
}

// Columns of a part, a multiple of a strip: all of them, where rows alone make enough parts.
std::int64_t columns_of_part(const Context& context, std::int64_t row_parts, std::int64_t rows,
                             std::int64_t n, std::int64_t k) {
  const std::int64_t least =
      rows > kTilePair ? kPartColumns : kPartWeightBytes / (2 * std::max<std::int64_t>(k, 1)) + 1;
  const std::int64_t wanted = tiles(2 * context.threads.threads(), row_parts);
  return up(tiles(n, std::min(wanted, tiles(n, least))), kStrip);
}

class AmxProduct {
 public:
  AmxProduct(Context& context, const Tensor& y, const Tensor& a, const Right& right,
             const Tensor& bias, const Epilogue& epilogue)
      : context_(context),
        y_(y),
        a_(a),
        right_(right),
        bias_(bias),
        epilogue_(epilogue),
        n_(right.n()),
        k_(right.k()),
        packed_(right.weight.form != WeightForm::kRows),
        rows_(rows_of_part(context, a.dim(0))),
        row_parts_(tiles(a.dim(0), rows_)),
        columns_(columns_of_part(context, row_parts_, a.dim(0), n_, k_)) {}

  std::int64_t parts() const { return row_parts_ * tiles(n_, columns_); }

  void operator()(std::int64_t part) const {
    run(part % row_parts_ * rows_, part / row_parts_ * columns_);
  }

 private:
  void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t m = std::min(rows_, a_.dim(0) - row);
    const std::int64_t n = std::min(columns_, n_ - column);
    const std::int64_t depth = std::min(k_, kDepth);
    const std::int64_t strip_sums = up(m, kTileEdge) * kStrip;
    const std::int64_t strips = k_ > kDepth ? tiles(n, kStrip) : 1;  // whose sums wait
    const std::int64_t left_bytes = tile_bytes(m, depth);
    const std::int64_t right_bytes = packed_ ? 0 : tile_bytes(kStrip, depth);
    const std::int64_t sums_bytes = strips * strip_sums * 4;
    std::byte* left = context_.scratch.own(left_bytes + right_bytes + sums_bytes + kStrip * 4);
    std::byte* right = left + left_bytes;
    auto* sums = reinterpret_cast<float*>(right + right_bytes);
    auto* bias = reinterpret_cast<float*>(right + right_bytes + sums_bytes);
    const TileScope scope(*context_.tiles);
    for (std::int64_t first = 0; first < k_; first += kDepth) {
      const std::int64_t k = std::min(kDepth, k_ - first);
      context_.tiles->pack_left(left, {at(a_, row, first), type_of(a_.dtype()), a_.stride(0)}, m,
                                k);
      for (std::int64_t strip = 0; strip * kStrip < n; ++strip) {
        const std::int64_t from = column + strip * kStrip;
        const std::int64_t width = std::min(kStrip, n_ - from);
        TileMultiply product{.rows = m,
                             .columns = width,
                             .steps = tile_steps(k),
                             .left = {.data = left, .group = tile_pair_bytes(k)},
                             .sums = strips > 1 ? sums + strip * strip_sums : sums,
                             .sums_stride = kStrip,
                             .adds = first > 0};
        set_right(product, from, first, width, k, right);
        if (first + k == k_) {
          product.written = {.data = at(y_, row, from),
                             .stride = y_.stride(0) * size_bytes(y_.dtype()),
                             .lines = tiles(width * size_bytes(y_.dtype()), 64),
                             .rows = m};
        }
        context_.tiles->multiply(product);
        if (first + k == k_) finish(product.sums, row, from, m, width, bias);
      }
    }
  }

  void set_right(TileMultiply& product, std::int64_t column, std::int64_t first, std::int64_t n,
                 std::int64_t k, std::byte* tile) const {
    const Tensor& weight = right_.weight.tensor;
    if (packed_) {
      const std::int64_t panel = tile_pair_bytes(k_);
      product.right.data =
          weight.raw() + column / kTilePair * panel + first / kTileDepth * kStepBytes;
      product.right.panel = panel;
      const std::int64_t next = std::min(kStrip, n_ - column - n);
      if (next > 0) {
        product.read = {.data = product.right.data + kStrip / kTilePair * panel,
                        .stride = panel,
                        .lines = product.steps * kStepBytes / 64,
                        .rows = tiles(next, kTilePair)};
      }
      return;
    }
    product.right.data = tile;
    product.right.panel = tile_pair_bytes(k);
    if (right_.backward) {
      context_.tiles->pack_right(tile, {at(weight, first, column), Type::kBF16, weight.stride(0)},
                                 n, k);
    } else {
      context_.tiles->pack_right_rows(
          tile, {at(weight, column, first), Type::kBF16, weight.stride(0)}, n, k);
    }
  }

  // Sums of a strip to y.
  void finish(float* sums, std::int64_t row, std::int64_t column, std::int64_t m, std::int64_t n,
              float* bias) const {
    if (bias_.defined()) {
      context_.vector.convert(bias, Type::kF32, bias_.raw() + column * size_bytes(bias_.dtype()),
                              type_of(bias_.dtype()), n);
    }
    const float* start = bias_.defined() ? bias : nullptr;
    if (!epilogue_.given()) {
      return context_.tiles->store({at(y_, row, column), type_of(y_.dtype()), y_.stride(0)}, sums,
                                   kStrip, start, m, n);
    }
    if (start != nullptr) {
      context_.tiles->store({sums, Type::kF32, kStrip}, sums, kStrip, start, m, n);
    }
    epilogue_.finish(context_, y_, sums, kStrip, row, column, m, n);
  }

  Context& context_;
  const Tensor& y_;
  const Tensor& a_;
  const Right& right_;
  const Tensor& bias_;
  const Epilogue& epilogue_;
  std::int64_t n_;
  std::int64_t k_;
  bool packed_;
  std::int64_t rows_;  // of a part
  std::int64_t row_parts_;
  std::int64_t columns_;  // of a part
};

// Rows of x and dy that the gradient of a weight takes at a time: dW is read and written once for
// each.
constexpr std::int64_t kGradientDepth = 2048;

}  // namespace

std::int64_t amx_packed_bytes(std::int64_t n, std::int64_t k) { return tile_bytes(n, k); }

void amx_pack(Context& context, const PackWeight& call) {
  const bool backward = call.form == WeightForm::kBackward;
  const std::int64_t n = call.rows.dim(backward ? 1 : 0);
  const std::int64_t k = call.rows.dim(backward ? 0 : 1);
  context.ranges(n, kStrip, [&](std::int64_t begin, std::int64_t end) {
    std::byte* to = call.packed.raw() + begin / kTilePair * tile_pair_bytes(k);
    const Matrix from{backward ? at(call.rows, 0, begin) : at(call.rows, begin, 0), Type::kBF16,
                      call.rows.stride(0)};
    (backward ? context.tiles->pack_right : context.tiles->pack_right_rows)(to, from, end - begin,
                                                                            k);
  });
}

void amx_product(Context& context, const Tensor& y, const Tensor& a, const Right& right,
                 const Tensor& bias, const Epilogue& epilogue) {
  const AmxProduct product(context, y, a, right, bias, epilogue);
  context.threads.run(product.parts(), product);
}

// dW[out, in] = dy^T x, with dy^T as the left side and x as the right, both packed once.
void amx_add_weight_gradient(Context& context, const LinearBackwardWeight& call) {
  const std::int64_t rows = call.x.dim(0);
  const std::int64_t out = call.dweight.dim(0);
  const std::int64_t in = call.dweight.dim(1);
  const std::int64_t stride = call.dweight.stride(0);
  std::byte* x_panels = context.scratch.shared(tile_bytes(in, std::min(rows, kGradientDepth)));
  for (std::int64_t row = 0; row < rows; row += kGradientDepth) {
    const std::int64_t k = std::min(kGradientDepth, rows - row);
    const std::int64_t panel = tile_pair_bytes(k);
    context.ranges(in, kTilePair, [&](std::int64_t begin, std::int64_t end) {
      context.tiles->pack_right(x_panels + begin / kTilePair * panel,
                                {at(call.x, row, begin), Type::kBF16, call.x.stride(0)},
                                end - begin, k);
    });
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t m = end - begin;
      std::byte* left = context.scratch.own(tile_bytes(m, k) + up(m, kTileEdge) * kStrip * 4);
      auto* sums = reinterpret_cast<float*>(left + tile_bytes(m, k));
      context.tiles->pack_left_columns(
          left, {at(call.dy, row, begin), type_of(call.dy.dtype()), call.dy.stride(0)}, m, k);
      const TileScope scope(*context.tiles);
      for (std::int64_t strip = 0; strip < in; strip += kStrip) {
        const std::int64_t width = std::min(kStrip, in - strip);
        float* to = call.dweight.data<float>() + begin * stride + strip;
        context.tiles->multiply(
            {.rows = m,
             .columns = width,
             .steps = tile_steps(k),
             .left = {.data = left, .group = panel},
             .right = {.data = x_panels + strip / kTilePair * panel, .panel = panel},
             .sums = sums,
             .sums_stride = kStrip,
             .written = {.data = reinterpret_cast<const std::byte*>(to),
                         .stride = stride * 4,
                         .lines = tiles(width * 4, 64),
                         .rows = m}});
        context.tiles->add(to, stride, sums, kStrip, m, width);
      }
    };
    context.ranges(out, rows_of_part(context, out), part);
  }
}

}  // namespace piton::cpu
