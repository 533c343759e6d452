// The loop over tiles, for any `Tiles`: those of the processor (hardware.h) or their model
// (model.h).
//
// Accumulators are tiles 0..3, two rows of two; the left side is in tiles 4 and 5, the right side
// in 6 and 7. A step of k loads four tiles for four products.
#pragma once

#include "kernels/cpu/amx/table.h"

namespace piton::cpu {

// Steps of k for which a panel of the right side (16 KiB) stays in the first-level cache while the
// groups of the left side pass by it; sums wait in the second level meanwhile.
inline constexpr std::int64_t kTileChunk = 8;

// What is still to be brought nearer, a few lines a step.
class AheadLines {
 public:
  inline __attribute__((always_inline)) AheadLines(const TileAhead& ahead, std::int64_t steps)
      : ahead_(ahead), left_(ahead.lines * ahead.rows) {
    each_ = steps > 0 ? (left_ + steps - 1) / steps : 0;
  }
  // bring(address) for the lines of one step.
  template <typename Bring>
  inline __attribute__((always_inline)) void step(Bring bring) {
    for (std::int64_t i = 0; i < each_ && left_ > 0; ++i, --left_) {
      bring(ahead_.data + line_ * 64);
      if (++line_ == ahead_.lines) {
        line_ = 0;
        ahead_.data += ahead_.stride;
      }
    }
  }

 private:
  TileAhead ahead_;
  std::int64_t left_;
  std::int64_t each_ = 0;
  std::int64_t line_ = 0;
};

// Sums of 16 or 32 rows and 32 columns over `steps`.
template <int row_tiles, typename Tiles>
inline void tile_block(Tiles& tiles, std::int64_t steps, LeftTiles left, RightTiles right,
                       float* sums, std::int64_t stride, bool adds, AheadLines& read,
                       AheadLines& written) {
  const std::int64_t bytes = stride * 4;
  auto* low = reinterpret_cast<std::byte*>(sums);
  std::byte* high = low + kTileEdge * bytes;
  const std::byte* a = left.data;
  const std::byte* b = right.data;
  tiles.fence();
  if (adds) {
    tiles.template load<0>(low, bytes);
    tiles.template load<1>(low + 64, bytes);
    if constexpr (row_tiles == 2) {
      tiles.template load<2>(high, bytes);
      tiles.template load<3>(high + 64, bytes);
    }
  } else {
    tiles.template zero<0>();
    tiles.template zero<1>();
    if constexpr (row_tiles == 2) {
      tiles.template zero<2>();
      tiles.template zero<3>();
    }
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    tiles.template load<6>(b, right.row);
    tiles.template load<4>(a, left.row);
    tiles.template dot<0>();
    tiles.template load<7>(b + right.half, right.row);
    tiles.template dot<1>();
    if constexpr (row_tiles == 2) {
      tiles.template load<5>(a + kTileEdge * left.row, left.row);
      tiles.template dot<2>();
      tiles.template dot<3>();
    }
    read.step([&](const void* at) { tiles.bring(at); });
    written.step([&](const void* at) { tiles.bring_to_write(at); });
    a += left.step;
    b += right.step;
  }
  tiles.template store<0>(low, bytes);
  tiles.template store<1>(low + 64, bytes);
  if constexpr (row_tiles == 2) {
    tiles.template store<2>(high, bytes);
    tiles.template store<3>(high + 64, bytes);
  }
}

template <typename Tiles>
inline void tile_product(Tiles& tiles, const TileMultiply& p) {
  const std::int64_t groups = (p.rows + kTilePair - 1) / kTilePair;
  const std::int64_t panels = (p.columns + kTilePair - 1) / kTilePair;
  // One group alone gains nothing from a panel that stays.
  const std::int64_t chunk = groups == 1 ? p.steps : kTileChunk;
  AheadLines read(p.read, groups * panels * p.steps);
  AheadLines written(p.written, groups * panels * p.steps);
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    for (std::int64_t first = 0; first < p.steps; first += chunk) {
      const std::int64_t steps = chunk < p.steps - first ? chunk : p.steps - first;
      const bool adds = p.adds || first > 0;
      RightTiles right = p.right;
      right.data += panel * right.panel + first * right.step;
      LeftTiles left = p.left;
      left.data += first * left.step;
      float* sums = p.sums + panel * kTilePair;
      for (std::int64_t row = 0; row < p.rows; row += kTilePair) {
        if (p.rows - row > kTileEdge) {
          tile_block<2>(tiles, steps, left, right, sums, p.sums_stride, adds, read, written);
        } else {
          tile_block<1>(tiles, steps, left, right, sums, p.sums_stride, adds, read, written);
        }
        left.data += left.group;
        sums += kTilePair * p.sums_stride;
      }
    }
  }
}

}  // namespace piton::cpu
