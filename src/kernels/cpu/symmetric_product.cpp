// Symmetric products: by tiles, only the squares on and below the diagonal; otherwise by a whole
// product in fp32.
#include <algorithm>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/muon.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kMostSymmetricDepth = 1536;  // of one packing of both sides

// Rows of the result: factor * sums + addend_factor * addend + diagonal on the diagonal.
// sums [rows, columns], rows `stride` apart, are elements from (row, column) of the result on.
void add_terms(const Context& context, const SymmetricProduct& call, float* sums,
               std::int64_t stride, std::int64_t row, std::int64_t column, std::int64_t rows,
               std::int64_t columns, float* floats) {
  const auto factor = static_cast<float>(call.factor);
  const auto addend_factor = static_cast<float>(call.addend_factor);
  const bool scales = call.factor != 1;
  for (std::int64_t r = 0; r < rows; ++r, sums += stride) {
    if (scales) {
      for (std::int64_t c = 0; c < columns; ++c) sums[c] *= factor;
    }
    if (call.addend.defined()) {
      context.vector.convert(floats, Type::kF32, at(call.addend, row + r, column),
                             type_of(call.addend.dtype()), columns);
      for (std::int64_t c = 0; c < columns; ++c) sums[c] += addend_factor * floats[c];
    }
    const std::int64_t c = row + r - column;
    if (c >= 0 && c < columns) sums[c] += static_cast<float>(call.diagonal);
  }
}

// Both sides are packed once for all threads. A part is a row of squares and its counterpart from
// the end, so all parts have the same number of squares.
class TiledSymmetric {
 public:
  TiledSymmetric(Context& context, const SymmetricProduct& call)
      : context_(context),
        call_(call),
        n_(call.y.dim(0)),
        k_(call.depth()),
        depth_(std::max(up(tiles(k_, tiles(k_, kMostSymmetricDepth)), kTileDepth), kTileDepth)),
        squares_(tiles(n_, kTileSquare)) {
    const std::int64_t side = tile_bytes(up(n_, kTileSquare), depth_);
    const std::int64_t waiting = k_ > depth_ ? squares_ * (squares_ + 1) / 2 * kSquareBytes : 0;
    left_ = context.scratch.shared(2 * side + waiting);
    right_ = left_ + side;
    if (waiting > 0) waiting_ = reinterpret_cast<float*>(right_ + side);
  }

  void run() {
    for (std::int64_t first = 0; first < k_; first += depth_) {
      const std::int64_t k = std::min(depth_, k_ - first);
      context_.ranges(n_, kTileSquare,
                      [&](std::int64_t begin, std::int64_t end) { pack(begin, end, first, k); });
      const auto part = [&](std::int64_t index) {
        const TileScope scope(*context_.tiles);
        const std::int64_t counterpart = squares_ - 1 - index;
        row_of_squares(index, first, k);
        if (counterpart != index) row_of_squares(counterpart, first, k);
      };
      context_.threads.run(tiles(squares_, 2), part);
    }
  }

 private:
  static constexpr std::int64_t kSquareBytes = kTileSquare * kTileSquare * 4;

  // Rows [begin, end) of both sides, of k [first, first + k).
  void pack(std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t k) const {
    const std::int64_t place = begin / kTilePair * tile_pair_bytes(k);
    const auto side = [&](const Tensor& tensor) -> Matrix {
      return {call_.transposed ? at(tensor, first, begin) : at(tensor, begin, first), Type::kBF16,
              tensor.stride(0)};
    };
    const TileTable& tiles = *context_.tiles;
    (call_.transposed ? tiles.pack_left_columns : tiles.pack_left)(left_ + place, side(call_.left),
                                                                   end - begin, k);
    (call_.transposed ? tiles.pack_right : tiles.pack_right_rows)(right_ + place, side(call_.right),
                                                                  end - begin, k);
  }

  void row_of_squares(std::int64_t i, std::int64_t first, std::int64_t k) const {
    const std::int64_t pair = tile_pair_bytes(k);
    const bool last = first + k == k_;
    auto* own = reinterpret_cast<float*>(context_.scratch.own(kSquareBytes + kTileSquare * 4));
    for (std::int64_t j = 0; j <= i; ++j) {
      float* sums =
          waiting_ != nullptr ? waiting_ + (i * (i + 1) / 2 + j) * kTileSquare * kTileSquare : own;
      const std::int64_t rows = std::min(kTileSquare, n_ - i * kTileSquare);
      const std::int64_t columns = std::min(kTileSquare, n_ - j * kTileSquare);
      context_.tiles->multiply({.rows = rows,
                                .columns = columns,
                                .steps = tile_steps(k),
                                .left = {.data = left_ + 2 * i * pair, .group = pair},
                                .right = {.data = right_ + 2 * j * pair, .panel = pair},
                                .sums = sums,
                                .sums_stride = kTileSquare,
                                .adds = first > 0});
      if (last) finish(i, j, rows, columns, sums, own + kTileSquare * kTileSquare);
    }
  }

  void finish(std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t columns, float* sums,
              float* floats) const {
    const std::int64_t row = i * kTileSquare;
    const std::int64_t column = j * kTileSquare;
    if (call_.has_terms()) {
      add_terms(context_, call_, sums, kTileSquare, row, column, rows, columns, floats);
    }
    // On the diagonal, tile by tile: those on it here, those below it by store_transposed.
    for (std::int64_t r = 0; i == j && r < rows; ++r) {
      for (std::int64_t c = r / kTileEdge * kTileEdge; c < r; ++c) {
        sums[c * kTileSquare + r] = sums[r * kTileSquare + c];
      }
    }
    TileStore store{.y = {at(call_.y, row, column), Type::kBF16, call_.y.stride(0)},
                    .sums = sums,
                    .sums_stride = kTileSquare,
                    .rows = rows,
                    .columns = columns};
    context_.tiles->store(store);
    if (i != j) {
      store.y.data = at(call_.y, column, row);
      return context_.tiles->store_transposed(store);
    }
    for (std::int64_t r = kTileEdge; r < rows; r += kTileEdge) {
      store.y.data = at(call_.y, column, row + r);
      store.sums = sums + r * kTileSquare;
      store.rows = std::min(kTileEdge, rows - r);
      store.columns = r;
      context_.tiles->store_transposed(store);
    }
  }

  Context& context_;
  const SymmetricProduct& call_;
  std::int64_t n_;
  std::int64_t k_;
  std::int64_t depth_;
  std::int64_t squares_;
  std::byte* left_;
  std::byte* right_;
  float* waiting_ = nullptr;  // sums of the squares, if k has several depths
};

// Without tiles: the whole product, whose lower triangle counts.
void whole_product(Context& context, const SymmetricProduct& call) {
  const std::int64_t n = call.y.dim(0);
  const Tensor sums = host_tensor(DType::kF32, {n, n});
  if (call.transposed) {
    execute(context, LinearBackwardWeight{
                         .dweight = sums, .dy = call.left, .x = call.right, .overwrites = true});
  } else {
    execute(context, LinearForward{.y = sums,
                                   .x = call.left,
                                   .weight = {.tensor = call.right,
                                              .out = n,
                                              .in = call.depth(),
                                              .dtype = call.right.dtype(),
                                              .codes = {}}});
  }
  auto* all = sums.data<float>();
  context.ranges(n, grain_of(n * 12), [&](std::int64_t begin, std::int64_t end) {
    auto* floats = reinterpret_cast<float*>(context.scratch.own(n * 4));
    add_terms(context, call, all + begin * n, n, begin, 0, end - begin, n, floats);
  });
  context.ranges(n, grain_of(n * 8), [&](std::int64_t begin, std::int64_t end) {
    auto* row = reinterpret_cast<float*>(context.scratch.own(n * 4));
    for (std::int64_t i = begin; i < end; ++i) {
      std::copy_n(all + i * n, i + 1, row);
      for (std::int64_t j = i + 1; j < n; ++j) row[j] = all[j * n + i];
      context.vector.convert(at(call.y, i, 0), type_of(call.y.dtype()), row, Type::kF32, n);
    }
  });
}

}  // namespace

void execute(Context& context, const SymmetricProduct& call) {
  if (uses_tiles(context, call.left.dtype())) return TiledSymmetric(context, call).run();
  whole_product(context, call);
}

}  // namespace piton::cpu
