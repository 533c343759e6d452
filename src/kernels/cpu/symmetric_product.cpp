// Symmetric products: by tiles, only the squares on and below the diagonal; otherwise blocks of
// rows up to it, by products in fp32.
#include <algorithm>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/muon.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kMostSymmetricDepth = 1536;  // of one packing
// Without tiles: blocks of rows of a product (5/8 of all sums), rows of a part that mirrors.
constexpr std::int64_t kRowBlocks = 4;
constexpr std::int64_t kMirroredRows = 16;

std::uint16_t* elements(const Tensor& bf16) { return reinterpret_cast<std::uint16_t*>(bf16.raw()); }

// A part is a block of columns: it packs its right side, which then stays in the second-level cache
// with the square of the left side that it is multiplied with. Parts get smaller, so that threads
// finish together. The left side is read from the rows of its matrix where that is fast; otherwise
// it is packed once for all threads.
class TiledSymmetric {
 public:
  TiledSymmetric(CpuContext& context, const SymmetricProduct& call)
      : context_(context),
        call_(call),
        n_(call.y.dim(0)),
        k_(call.depth()),
        depth_(std::max(up(tiles(k_, tiles(k_, kMostSymmetricDepth)), kTileDepth), kTileDepth)),
        squares_(tiles(n_, kTileSquare)),
        strips_(strips_of_part(context.threads.threads())),
        packs_left_(!reads_rows(call)) {
    const std::int64_t left = packs_left_ ? tile_bytes(n_, depth_) : 0;
    const std::int64_t waiting = k_ > depth_ ? squares_ * (squares_ + 1) / 2 * kSquareBytes : 0;
    if (left + waiting == 0) return;
    left_ = context.scratch.shared(left + waiting);
    if (waiting > 0) waiting_ = reinterpret_cast<float*>(left_ + left);
  }

  void run() {
    for (std::int64_t first = 0; first < k_; first += depth_) {
      const std::int64_t k = std::min(depth_, k_ - first);
      if (packs_left_) {
        context_.ranges(n_, kTileSquare, [&](std::int64_t begin, std::int64_t end) {
          pack_left(begin, end, first, k);
        });
      }
      const auto part = [&](std::int64_t index) {
        const TileScope scope(*context_.tiles);
        columns_of_squares(index * strips_, first, k);
      };
      context_.threads.run(tiles(squares_, strips_), part);
    }
  }

 private:
  static constexpr std::int64_t kSquareBytes = kTileSquare * kTileSquare * 4;
  static constexpr std::int64_t kMostStrips = 4;      // of 64 columns and 1536 k: 768 KiB
  static constexpr std::int64_t kPartsPerThread = 3;  // at least, so that threads finish together

  std::int64_t strips_of_part(std::int64_t threads) const {
    const std::int64_t most = threads > 1 ? squares_ / (kPartsPerThread * threads) : kMostStrips;
    return std::clamp<std::int64_t>(most, 1, kMostStrips);
  }

  // Whether tiles of the left side can be loaded from the rows of its matrix: whole tiles, whose
  // lines are spread over the sets of the first-level cache.
  static bool reads_rows(const SymmetricProduct& call) {
    const std::int64_t stride = call.left.stride(0) * 2;
    return !call.transposed && call.y.dim(0) % kTileEdge == 0 && call.depth() % kTileDepth == 0 &&
           stride % 64 == 0 && stride / 64 % 16 != 0 &&
           reinterpret_cast<std::uintptr_t>(call.left.raw()) % 64 == 0;
  }

  // Rows [begin, end), of k [first, first + k).
  Matrix side(const Tensor& tensor, std::int64_t begin, std::int64_t first) const {
    return {call_.transposed ? at(tensor, first, begin) : at(tensor, begin, first), Type::kBF16,
            tensor.stride(0)};
  }
  void pack_left(std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t k) const {
    const TileTable& tiles = *context_.tiles;
    (call_.transposed ? tiles.pack_left_columns : tiles.pack_left)(
        left_ + begin / kTilePair * tile_pair_bytes(k), side(call_.left, begin, first), end - begin,
        k);
  }
  void pack_right(std::byte* to, std::int64_t begin, std::int64_t end, std::int64_t first,
                  std::int64_t k) const {
    const TileTable& tiles = *context_.tiles;
    (call_.transposed ? tiles.pack_right : tiles.pack_right_rows)(
        to, side(call_.right, begin, first), end - begin, k);
  }

  // The left side from row `row` on.
  LeftTiles left_tiles(std::int64_t row, std::int64_t first, std::int64_t k) const {
    const std::int64_t pair = tile_pair_bytes(k);
    if (packs_left_) return {.data = left_ + row / kTilePair * pair, .group = pair};
    return tiles_of_rows(call_.left, row, first);
  }

  // The squares of columns [begin, begin + strips_), on and below the diagonal.
  void columns_of_squares(std::int64_t begin, std::int64_t first, std::int64_t k) const {
    const std::int64_t end = std::min(begin + strips_, squares_);
    const std::int64_t pair = tile_pair_bytes(k);
    std::byte* right = context_.scratch.own(2 * strips_ * pair + kSquareBytes);
    auto* own = reinterpret_cast<float*>(right + 2 * strips_ * pair);
    pack_right(right, begin * kTileSquare, std::min(end * kTileSquare, n_), first, k);
    for (std::int64_t i = begin; i < squares_; ++i) {
      for (std::int64_t j = begin; j < std::min(i + 1, end); ++j) {
        float* sums = waiting_ != nullptr
                          ? waiting_ + (i * (i + 1) / 2 + j) * kTileSquare * kTileSquare
                          : own;
        const std::int64_t rows = std::min(kTileSquare, n_ - i * kTileSquare);
        const std::int64_t columns = std::min(kTileSquare, n_ - j * kTileSquare);
        context_.tiles->multiply({.rows = rows,
                                  .columns = columns,
                                  .steps = tile_steps(k),
                                  .left = left_tiles(i * kTileSquare, first, k),
                                  .right = {.data = right + 2 * (j - begin) * pair, .panel = pair},
                                  .sums = sums,
                                  .sums_stride = kTileSquare,
                                  .adds = first > 0});
        if (first + k < k_) continue;
        context_.tiles->mirror({.y = elements(call_.y),
                                .y_stride = call_.y.stride(0),
                                .addend = addend_,
                                .addend_stride = addend_ != nullptr ? call_.addend.stride(0) : 0,
                                .sums = sums,
                                .row = i * kTileSquare,
                                .column = j * kTileSquare,
                                .rows = rows,
                                .columns = columns,
                                .factor = static_cast<float>(call_.factor),
                                .addend_factor = static_cast<float>(call_.addend_factor),
                                .diagonal = static_cast<float>(call_.diagonal)});
      }
    }
  }

  CpuContext& context_;
  const SymmetricProduct& call_;
  std::int64_t n_;
  std::int64_t k_;
  std::int64_t depth_;
  std::int64_t squares_;
  std::int64_t strips_;  // of 64 columns, in a part
  bool packs_left_;
  const std::uint16_t* addend_ = call_.addend.defined() ? elements(call_.addend) : nullptr;
  std::byte* left_ = nullptr;
  float* waiting_ = nullptr;  // sums of the squares, if k has several depths
};

// Row `row` of the result up to the diagonal: factor sums + addend_factor addend, plus the
// diagonal. sums: [n, n]; floats: [n], overwritten.
void add_terms(const CpuContext& context, const SymmetricProduct& call, float* sums,
               std::int64_t row, float* floats) {
  sums += row * call.y.dim(0);
  if (call.factor != 1) {
    const auto factor = static_cast<float>(call.factor);
    for (std::int64_t c = 0; c <= row; ++c) sums[c] *= factor;
  }
  if (call.addend.defined()) {
    context.vector.convert(floats, Type::kF32, at(call.addend, row, 0),
                           type_of(call.addend.dtype()), row + 1);
    const auto factor = static_cast<float>(call.addend_factor);
    for (std::int64_t c = 0; c <= row; ++c) sums[c] += factor * floats[c];
  }
  sums[row] += static_cast<float>(call.diagonal);
}

// Rows [begin, end) of y, from the lower triangle of sums [n, n].
void write_rows(CpuContext& context, const Tensor& y, float* sums, std::int64_t begin,
                std::int64_t end) {
  const std::int64_t n = y.dim(0);
  const std::int64_t rows = end - begin;
  auto* whole = reinterpret_cast<float*>(context.scratch.own(rows * n * 4));
  if (end < n) {
    context.vector.transpose(whole + end, n, {sums + end * n + begin, Type::kF32, n},
                             static_cast<int>(n - end), static_cast<int>(rows));
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = whole + r * n;
    std::copy_n(sums + (begin + r) * n, begin + r + 1, row);
    for (std::int64_t c = begin + r + 1; c < end; ++c) row[c] = sums[c * n + begin + r];
    context.vector.convert(at(y, begin + r, 0), type_of(y.dtype()), row, Type::kF32, n);
  }
}

// Without tiles: blocks of rows up to the diagonal, whose lower triangle counts.
void product_of_rows(CpuContext& context, const SymmetricProduct& call) {
  const std::int64_t n = call.y.dim(0);
  const Tensor sums = host_tensor(DType::kF32, {n, n});
  const std::int64_t block = up(std::max<std::int64_t>(tiles(n, kRowBlocks), 1), kRowTile);
  for (std::int64_t first = 0; first < n; first += block) {
    const std::int64_t rows = std::min(block, n - first);
    const std::int64_t end = first + rows;
    const Tensor part = sums.slice(0, first, rows).slice(1, 0, end);
    if (call.transposed) {
      execute(context, LinearBackwardWeight{.dweight = part,
                                            .dy = call.left.slice(1, first, rows),
                                            .x = call.right.slice(1, 0, end),
                                            .overwrites = true});
      continue;
    }
    execute(context, LinearForward{.y = part,
                                   .x = call.left.slice(0, first, rows),
                                   .weight = {.tensor = call.right.slice(0, 0, end),
                                              .out = end,
                                              .in = call.depth(),
                                              .dtype = call.right.dtype(),
                                              .codes = {}}});
  }
  auto* all = sums.data<float>();
  context.ranges(n, grain_of(n * 12), [&](std::int64_t begin, std::int64_t end) {
    auto* floats = reinterpret_cast<float*>(context.scratch.own(n * 4));
    for (std::int64_t row = begin; row < end; ++row) add_terms(context, call, all, row, floats);
  });
  context.ranges(n, kMirroredRows, [&](std::int64_t begin, std::int64_t end) {
    write_rows(context, call.y, all, begin, end);
  });
}

}  // namespace

void execute(CpuContext& context, const SymmetricProduct& call) {
  if (uses_tiles(context, call.left.dtype())) return TiledSymmetric(context, call).run();
  product_of_rows(context, call);
}

}  // namespace piton::cpu
