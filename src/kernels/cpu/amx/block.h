// The loop over tiles, for any `Tiles`: those of the processor (hardware.h) or their model
// (model.h).
//
// A block is 32 x 32 sums in four accumulators: a step of k loads four tiles for four products. The
// last products of a block complete only after the time of three more (52 cycles), and the
// processor stalls if more than two tile stores wait for them. So there are five accumulators, of
// which each block uses four: three stores of a block come after the first products of the next
// block, which begins in the fifth.
#pragma once

#include "kernels/cpu/amx/table.h"

namespace piton::cpu {

// Steps of k after which a block of a square pauses. The sums of a square of 2 x 2 blocks (16 KiB)
// and both operands of that many steps (24 KiB) fit into the first-level cache (48 KiB), so that
// each tile is loaded from the second level once for two blocks.
inline constexpr std::int64_t kTileChunk = 3;

// Cache lines still to be prefetched, a few per block.
class AheadLines {
 public:
  AheadLines(const TileAhead& ahead, std::int64_t blocks)
      : lines_(ahead.lines), stride_(ahead.stride), left_(ahead.end - ahead.first) {
    if (left_ <= 0) return;
    row_ = ahead.data + ahead.first / lines_ * stride_;
    next_ = row_ + ahead.first % lines_ * 64;
    each_ = (left_ + blocks - 1) / blocks;
  }
  // Calls bring(address) for the lines of one block.
  template <typename Bring>
  inline __attribute__((always_inline)) void block(Bring bring) {
    if (left_ <= 0) return;
    std::int64_t count = each_ < left_ ? each_ : left_;
    left_ -= count;
    const std::byte* end = row_ + lines_ * 64;
    for (; count > 0; --count) {
      bring(next_);
      next_ += 64;
      if (next_ == end) {
        row_ += stride_;
        next_ = row_;
        end = row_ + lines_ * 64;
      }
    }
  }

 private:
  std::int64_t lines_;
  std::int64_t stride_;
  std::int64_t left_;
  std::int64_t each_ = 0;
  const std::byte* row_ = nullptr;
  const std::byte* next_ = nullptr;
};

// Computes the blocks of one product in order. Consecutive blocks must have different sums.
template <typename Tiles>
class TileBlocks {
 public:
  TileBlocks(Tiles& tiles, const TileMultiply& p)
      : tiles_(tiles),
        left_row_(p.left.row),
        left_step_(p.left.step),
        right_row_(p.right.row),
        right_half_(p.right.half),
        right_step_(p.right.step),
        sums_row_(p.sums_stride * 4) {}

  // 32 rows: sums = or += left right over `steps`.
  inline __attribute__((always_inline)) void whole(const std::byte* left, const std::byte* right,
                                                   std::byte* sums, std::int64_t steps, bool adds) {
    switch (turn_) {
      case 0:
        block<0>(left, right, sums, steps, adds);
        break;
      case 1:
        block<1>(left, right, sums, steps, adds);
        break;
      case 2:
        block<2>(left, right, sums, steps, adds);
        break;
      case 3:
        block<3>(left, right, sums, steps, adds);
        break;
      default:
        block<4>(left, right, sums, steps, adds);
    }
    turn_ = turn_ == kAccumulators - 1 ? 0 : turn_ + 1;
    waiting_ = sums;
  }

  // 16 rows.
  void half(const std::byte* left, const std::byte* right, std::byte* sums, std::int64_t steps,
            bool adds) {
    finish();
    begin<0>(sums, adds);
    begin<1>(sums + 64, adds);
    for (std::int64_t step = 0; step < steps; ++step, left += left_step_, right += right_step_) {
      tiles_.template load<kLeft>(left, left_row_);
      tiles_.template load<kRightLow>(right, right_row_);
      tiles_.template dot<0, kLeft, kRightLow>();
      tiles_.template load<kRightHigh>(right + right_half_, right_row_);
      tiles_.template dot<1, kLeft, kRightHigh>();
    }
    tiles_.template store<0>(sums, sums_row_);
    tiles_.template store<1>(sums + 64, sums_row_);
  }

  // Stores the sums that are still in accumulators.
  void finish() {
    switch (turn_) {
      case 0:
        store_waiting<0>();
        break;
      case 1:
        store_waiting<1>();
        break;
      case 2:
        store_waiting<2>();
        break;
      case 3:
        store_waiting<3>();
        break;
      default:
        store_waiting<4>();
    }
    waiting_ = nullptr;
  }

 private:
  static constexpr int kAccumulators = 5;
  static constexpr int kLeft = 5;
  static constexpr int kRightLow = 6;
  static constexpr int kRightHigh = 7;

  // Accumulator of sums i of the block of a turn. Sums i of the block before it are where sums i +
  // 1 go: its sums 0 are stored at its end, 1 before sums 2 begin, and 2 before sums 3.
  template <int turn, int i>
  static constexpr int kOf = (i + kAccumulators - turn) % kAccumulators;

  template <int accumulator>
  inline __attribute__((always_inline)) void begin(const std::byte* sums, bool adds) {
    if (adds) {
      tiles_.template load<accumulator>(sums, sums_row_);
    } else {
      tiles_.template zero<accumulator>();
    }
  }

  std::int64_t low_rows() const { return kTileEdge * sums_row_; }

  // Stores sums i of the block before the block of `turn`.
  template <int turn, int i>
  inline __attribute__((always_inline)) void store_waiting() {
    if (waiting_ == nullptr) return;
    std::byte* sums = waiting_ + i / 2 * low_rows() + i % 2 * 64;
    tiles_.template store<kOf<turn, i + 1>>(sums, sums_row_);
  }
  template <int turn>
  void store_waiting() {
    store_waiting<turn, 1>();
    store_waiting<turn, 2>();
    store_waiting<turn, 3>();
  }

  template <int turn>
  inline __attribute__((always_inline)) void block(const std::byte* a, const std::byte* b,
                                                   std::byte* sums, std::int64_t steps, bool adds) {
    constexpr int s0 = kOf<turn, 0>;
    constexpr int s1 = kOf<turn, 1>;
    constexpr int s2 = kOf<turn, 2>;
    constexpr int s3 = kOf<turn, 3>;
    // In registers: tile loads take nearly all of the bandwidth of the first-level cache.
    const std::int64_t a_row = left_row_;
    const std::int64_t a_step = left_step_;
    const std::int64_t a_high = kTileEdge * a_row;
    const std::int64_t b_row = right_row_;
    const std::int64_t b_step = right_step_;
    const std::int64_t b_high = right_half_;
    std::byte* low = sums + low_rows();
    begin<s0>(sums, adds);
    tiles_.template load<kLeft>(a, a_row);
    tiles_.template load<kRightLow>(b, b_row);
    tiles_.template dot<s0, kLeft, kRightLow>();
    begin<s1>(sums + 64, adds);
    tiles_.template load<kRightHigh>(b + b_high, b_row);
    tiles_.template dot<s1, kLeft, kRightHigh>();
    store_waiting<turn, 1>();
    begin<s2>(low, adds);
    tiles_.template load<kLeft>(a + a_high, a_row);
    tiles_.template dot<s2, kLeft, kRightLow>();
    store_waiting<turn, 2>();
    begin<s3>(low + 64, adds);
    tiles_.template dot<s3, kLeft, kRightHigh>();
    if (steps == 1) store_waiting<turn, 3>();
    for (std::int64_t step = 1; step < steps; ++step) {
      a += a_step;
      b += b_step;
      tiles_.template load<kLeft>(a, a_row);
      tiles_.template load<kRightLow>(b, b_row);
      tiles_.template dot<s0, kLeft, kRightLow>();
      if (step == 1) store_waiting<turn, 3>();
      tiles_.template load<kRightHigh>(b + b_high, b_row);
      tiles_.template dot<s1, kLeft, kRightHigh>();
      tiles_.template load<kLeft>(a + a_high, a_row);
      tiles_.template dot<s2, kLeft, kRightLow>();
      tiles_.template dot<s3, kLeft, kRightHigh>();
    }
    tiles_.template store<s0>(sums, sums_row_);
  }

  Tiles& tiles_;
  const std::int64_t left_row_;
  const std::int64_t left_step_;
  const std::int64_t right_row_;
  const std::int64_t right_half_;
  const std::int64_t right_step_;
  const std::int64_t sums_row_;  // bytes
  int turn_ = 0;
  std::byte* waiting_ = nullptr;  // the block whose sums 1, 2 and 3 are in accumulators
};

// Computes a product square by square: at most two groups and two panels, whose blocks alternate.
template <typename Tiles>
inline void tile_product(Tiles& tiles, const TileMultiply& p) {
  const std::int64_t groups = (p.rows + kTilePair - 1) / kTilePair;
  const std::int64_t panels = (p.columns + kTilePair - 1) / kTilePair;
  // A single group gains nothing from pauses.
  const std::int64_t chunk = groups == 1 ? p.steps : kTileChunk;
  const bool brings = p.ahead[0].end > p.ahead[0].first || p.ahead[1].end > p.ahead[1].first;
  const std::int64_t blocks = brings ? groups * panels * ((p.steps + chunk - 1) / chunk) : 1;
  AheadLines ahead[] = {{p.ahead[0], blocks}, {p.ahead[1], blocks}};
  TileBlocks<Tiles> sums(tiles, p);
  struct Block {
    const std::byte* left;
    const std::byte* right;
    std::byte* sums;
    bool whole;
  };
  const auto square = [&](std::int64_t row, std::int64_t column) {
    Block square[4];
    Block* end = square;
    for (std::int64_t r = row; r < p.rows && r < row + kTileSquare; r += kTilePair) {
      for (std::int64_t c = column; c < p.columns && c < column + kTileSquare; c += kTilePair) {
        *end++ = {.left = p.left.data + r / kTilePair * p.left.group,
                  .right = p.right.data + c / kTilePair * p.right.panel,
                  .sums = reinterpret_cast<std::byte*>(p.sums + r * p.sums_stride + c),
                  .whole = p.rows - r > kTileEdge};
      }
    }
    for (std::int64_t first = 0; first < p.steps; first += chunk) {
      const std::int64_t steps = chunk < p.steps - first ? chunk : p.steps - first;
      const bool adds = p.adds || first > 0;
      const std::int64_t a = first * p.left.step;
      const std::int64_t b = first * p.right.step;
      for (const Block* block = square; block < end; ++block) {
        if (block->whole) {
          sums.whole(block->left + a, block->right + b, block->sums, steps, adds);
        } else {
          sums.half(block->left + a, block->right + b, block->sums, steps, adds);
        }
        for (AheadLines& lines : ahead) lines.block([&](const void* at) { tiles.bring(at); });
      }
    }
  };
  tiles.fence();
  for (std::int64_t column = 0; column < p.columns; column += kTileSquare) {
    for (std::int64_t row = 0; row < p.rows; row += kTileSquare) square(row, column);
  }
  sums.finish();
  tiles.fence();
}

}  // namespace piton::cpu
