// Linear maps by tile products. Every element is one chain over k in order (amx/table.h), so
// neither threads nor row counts nor the division of work affect its bits.
//
// A part packs some rows of the left side, which then stay in the second-level cache. The right
// side is read in strips of 64 columns, square by square: while one strip is multiplied, the next
// is prefetched to the second level.
#include <algorithm>
#include <limits>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/linear.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kStrip = kTileSquare;  // columns
constexpr std::int64_t kSquareBytes = kTileSquare * kTileSquare * 4;
// Largest k of one packing of the left side. For a larger k, the sums of a part are kept in fp32.
constexpr std::int64_t kMostDepth = 1536;
// A packed left side takes half of the 2 MiB of the second-level cache. The right side is read once
// per part, which costs as much as some more rows (kRowsOfPassing): with parts of 256 rows a sixth
// of the speed, measured with the right side in the third level.
constexpr std::int64_t kLeftBytes = 1 << 20;
constexpr std::int64_t kMostRows = 512;
constexpr std::int64_t kFewestRows = 128;
constexpr std::int64_t kRowsOfPassing = 96;
// Columns of the smallest part: with many rows, enough that packing them pays; with few, enough
// weight bytes that a part is worth handing to a thread.
constexpr std::int64_t kPartColumns = 256;
constexpr std::int64_t kPartWeightBytes = 128 << 10;
// A result larger than the second-level cache is evicted before it is read. Non-temporal stores
// save reading the lines that are written.
constexpr std::int64_t kStreamedBytes = 2 << 20;

// k of one packing: all of k in equal parts.
std::int64_t depth_of(std::int64_t k) {
  return std::max(up(tiles(k, tiles(k, kMostDepth)), kTileDepth), kTileDepth);
}

// Rows of a part, a multiple of a square, so that threads finish together. The division of work
// does not affect bits, so it may depend on the number of threads.
std::int64_t rows_of_part(const CpuContext& context, std::int64_t rows, std::int64_t depth) {
  const std::int64_t most = std::min(kMostRows, kLeftBytes / (2 * depth));
  std::int64_t best = 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t part = most / kTileSquare * kTileSquare; part >= kFewestRows;
       part -= kTileSquare) {
    const std::int64_t turns = tiles(tiles(rows, part), context.threads.threads());
    const std::int64_t cost = turns * (part + kRowsOfPassing);
    if (cost < least) {
      best = part;
      least = cost;
    }
  }
  return best;
}

// Columns of a part, a multiple of a strip: all columns if rows alone make enough parts.
std::int64_t columns_of_part(const CpuContext& context, std::int64_t row_parts, std::int64_t rows,
                             std::int64_t n, std::int64_t k) {
  const std::int64_t least =
      rows > kTilePair ? kPartColumns : kPartWeightBytes / (2 * std::max<std::int64_t>(k, 1)) + 1;
  const std::int64_t wanted = tiles(2 * context.threads.threads(), row_parts);
  return up(tiles(n, std::min(wanted, tiles(n, least))), kStrip);
}

// One of `of` equal shares of the lines.
struct Share {
  std::int64_t index;
  std::int64_t of;
};

// A share of `rows` rows of `bytes` bytes each, `stride` bytes apart.
TileAhead ahead(const void* data, std::int64_t stride, std::int64_t bytes, std::int64_t rows,
                Share share) {
  const std::int64_t lines = tiles(bytes, 64);
  return {.data = static_cast<const std::byte*>(data),
          .stride = stride,
          .lines = lines,
          .first = rows * lines * share.index / share.of,
          .end = rows * lines * (share.index + 1) / share.of};
}

bool streams(const Tensor& y) {
  const auto whole_lines = [](std::int64_t bytes) { return bytes % 64 == 0; };
  return y.dtype() == DType::kBF16 && y.dim(0) * y.dim(1) * 2 >= kStreamedBytes &&
         whole_lines(reinterpret_cast<std::intptr_t>(y.raw())) && whole_lines(y.stride(0) * 2) &&
         whole_lines(y.dim(1) * 2);
}

class AmxProduct : LinearProduct {
 public:
  AmxProduct(CpuContext& context, const LinearCall& call)
      : LinearProduct(context, call),
        n_(right_.n()),
        k_(right_.k()),
        few_(a_.dim(0) <= kTilePair),
        depth_(few_ ? std::max(up(k_, kTileDepth), kTileDepth) : depth_of(k_)),
        rows_(few_ ? kTilePair : rows_of_part(context, a_.dim(0), depth_)),
        row_parts_(tiles(a_.dim(0), rows_)),
        columns_(columns_of_part(context, row_parts_, a_.dim(0), n_, k_)),
        streams_(!epilogue_.given() && streams(y_)) {}

  std::int64_t parts() const { return row_parts_ * tiles(n_, columns_); }

  void operator()(std::int64_t part) const {
    run(part % row_parts_ * rows_, part / row_parts_ * columns_);
  }

 private:
  void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t m = std::min(rows_, a_.dim(0) - row);
    const std::int64_t n = std::min(columns_, n_ - column);
    const std::int64_t squares = tiles(m, kTileSquare);
    const std::int64_t strips = tiles(n, kStrip);
    const std::int64_t waiting = k_ > depth_ ? squares * strips : 1;
    const std::int64_t left_bytes = tile_bytes(m, depth_);
    const std::int64_t right_bytes = packed_ ? 0 : tile_bytes(kStrip, depth_);
    Scratch& scratch = context_.scratch;
    std::byte* left = scratch.own(left_bytes + right_bytes + waiting * kSquareBytes + kStrip * 4);
    std::byte* right = left + left_bytes;
    auto* sums = reinterpret_cast<float*>(right + right_bytes);
    auto* bias = sums + waiting * kSquareBytes / 4;
    const TileScope scope(*context_.tiles);
    for (std::int64_t first = 0; first < k_; first += depth_) {
      const std::int64_t k = std::min(depth_, k_ - first);
      const bool last = first + k == k_;
      context_.tiles->pack_left(left, {at(a_, row, first), type_of(a_.dtype()), a_.stride(0)}, m,
                                k);
      for (std::int64_t strip = 0; strip < strips; ++strip) {
        const std::int64_t from = column + strip * kStrip;
        const std::int64_t width = std::min(kStrip, n_ - from);
        TileMultiply product{.columns = width,
                             .steps = tile_steps(k),
                             .left = {.group = tile_pair_bytes(k)},
                             .sums = sums,
                             .sums_stride = kTileSquare,
                             .adds = first > 0};
        set_right(product, from, first, width, k, right);
        const float* added = last ? bias_of(bias, from, width) : nullptr;
        for (std::int64_t square = 0; square < squares; ++square) {
          const std::int64_t below = square * kTileSquare;
          product.rows = std::min(kTileSquare, m - below);
          product.left.data = left + square * 2 * tile_pair_bytes(k);
          if (waiting > 1) product.sums = sums + (strip * squares + square) * kSquareBytes / 4;
          product.ahead[0] = right_ahead(from + width, first, k, {square, squares});
          product.ahead[1] = waiting > 1 ? sums_ahead(product.sums)
                                         : y_ahead(row + below, from, product.rows, width);
          context_.tiles->multiply(product);
          if (!last) continue;
          finish_square(product.sums,
                        {.sums_stride = kTileSquare,
                         .bias = added,
                         .rows = product.rows,
                         .columns = width,
                         .streams = streams_},
                        row + below, from);
        }
      }
    }
  }

  void set_right(TileMultiply& product, std::int64_t column, std::int64_t first, std::int64_t n,
                 std::int64_t k, std::byte* tile) const {
    const Tensor& weight = right_.weight.tensor;
    if (packed_) {
      product.right.data = packed_at(column, first);
      product.right.panel = tile_pair_bytes(k_);
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

  const std::byte* packed_at(std::int64_t column, std::int64_t first) const {
    return right_.weight.tensor.raw() + column / kTilePair * tile_pair_bytes(k_) +
           first / kTileDepth * kStepBytes;
  }

  // Prefetches the strip from `column` on, at the same k.
  TileAhead right_ahead(std::int64_t column, std::int64_t first, std::int64_t k,
                        Share share) const {
    if (!packed_ || few_ || column >= n_) return {};
    const std::int64_t panels = tiles(std::min(kStrip, n_ - column), kTilePair);
    return ahead(packed_at(column, first), tile_pair_bytes(k_), tile_pair_bytes(k), panels, share);
  }
  // Prefetches the sums of the next square.
  static TileAhead sums_ahead(const float* sums) {
    return ahead(sums + kSquareBytes / 4, 0, kSquareBytes, 1, {0, 1});
  }
  TileAhead y_ahead(std::int64_t row, std::int64_t column, std::int64_t m, std::int64_t n) const {
    if (streams_) return {};
    const std::int64_t width = size_bytes(y_.dtype());
    return ahead(at(y_, row, column), y_.stride(0) * width, n * width, m, {0, 1});
  }
  std::int64_t n_;
  std::int64_t k_;
  // As decoding has them: the weight comes from memory, in whole panels, as the processor itself
  // prefetches them. Prefetches of ours would take the buffers that its own do not need: 0.57 of
  // the read bandwidth with them, 0.75 without.
  bool few_;
  std::int64_t depth_;  // of a packing
  std::int64_t rows_;   // of a part
  std::int64_t row_parts_;
  std::int64_t columns_;  // of a part
  bool streams_;
};

// Rows of x and dy per pass of the weight gradient: dW is read and written once per pass.
constexpr std::int64_t kGradientDepth = 1024;
// Columns of x that a part packs: rows are pages apart, so it reads several lines of each.
constexpr std::int64_t kPackColumns = 4 * kTilePair;

Matrix columns_of(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  return {at(tensor, row, column), type_of(tensor.dtype()), tensor.stride(0)};
}

}  // namespace

std::int64_t amx_packed_bytes(std::int64_t n, std::int64_t k) { return tile_bytes(n, k); }

std::int64_t amx_row_parts(const CpuContext& context, std::int64_t rows, std::int64_t k) {
  return rows <= kTilePair ? 1 : tiles(rows, rows_of_part(context, rows, depth_of(k)));
}

void amx_pack(CpuContext& context, const PackWeight& call) {
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

void amx_product(CpuContext& context, const LinearCall& call) {
  const bool stored = call.right.weight.form == WeightForm::kRows && !call.right.backward;
  if (stored && is_few_rows(call.a.dim(0), call.right.k())) return amx_rows_product(context, call);
  const AmxProduct product(context, call);
  context.threads.run(product.parts(), product);
}

// dW[out, in] += dy^T x, with dy^T as the left side and x as the right, both packed once. The sums
// of a stretch of rows are added (or stored, if they are the first) square by square.
void amx_add_weight_gradient(CpuContext& context, const LinearBackwardWeight& call) {
  const std::int64_t rows = call.x.dim(0);
  const std::int64_t out = call.dweight.dim(0);
  const std::int64_t in = call.dweight.dim(1);
  const std::int64_t stride = call.dweight.stride(0);
  std::byte* x_panels = context.scratch.shared(tile_bytes(in, std::min(rows, kGradientDepth)));
  for (std::int64_t row = 0; row < rows; row += kGradientDepth) {
    const std::int64_t k = std::min(kGradientDepth, rows - row);
    const std::int64_t panel = tile_pair_bytes(k);
    const bool adds = row > 0 || !call.overwrites;
    context.ranges(in, kPackColumns, [&](std::int64_t begin, std::int64_t end) {
      context.tiles->pack_right(x_panels + begin / kTilePair * panel,
                                columns_of(call.x, row, begin), end - begin, k);
    });
    const std::int64_t grain = rows_of_part(context, out, k);
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t m = end - begin;
      std::byte* left = context.scratch.own(tile_bytes(m, k) + kSquareBytes);
      auto* sums = reinterpret_cast<float*>(left + tile_bytes(m, k));
      context.tiles->pack_left_columns(left, columns_of(call.dy, row, begin), m, k);
      const TileScope scope(*context.tiles);
      const std::int64_t squares = tiles(m, kTileSquare);
      const std::int64_t strips = tiles(in, kStrip);
      for (std::int64_t strip = 0; strip < strips; ++strip) {
        const std::int64_t from = strip * kStrip;
        const std::int64_t width = std::min(kStrip, in - from);
        const std::byte* right = x_panels + 2 * strip * panel;
        const std::int64_t next_panels = tiles(std::min(kStrip, in - from - width), kTilePair);
        for (std::int64_t square = 0; square < squares; ++square) {
          const std::int64_t below = square * kTileSquare;
          const std::int64_t height = std::min(kTileSquare, m - below);
          float* to = call.dweight.data<float>() + (begin + below) * stride + from;
          const TileMultiply product{
              .rows = height,
              .columns = width,
              .steps = tile_steps(k),
              .left = {.data = left + 2 * square * panel, .group = panel},
              .right = {.data = right, .panel = panel},
              .sums = sums,
              .sums_stride = kTileSquare,
              .ahead = {ahead(right + 2 * panel, panel, panel, next_panels, {square, squares}),
                        ahead(to, stride * 4, width * 4, height, {0, 1})}};
          context.tiles->multiply(product);
          if (adds) {
            context.tiles->add(to, stride, sums, kTileSquare, height, width);
          } else {
            context.tiles->store({.y = {to, Type::kF32, stride},
                                  .sums = sums,
                                  .sums_stride = kTileSquare,
                                  .rows = height,
                                  .columns = width});
          }
        }
      }
    };
    context.ranges(out, grain, part);
  }
}

}  // namespace piton::cpu
