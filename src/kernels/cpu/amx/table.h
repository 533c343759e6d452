// Products by tiles (AMX, tdpbf16ps): C[16, 16] += A[16, 32] B[32, 16], bf16 by bf16 into fp32.
//
// The instruction adds the even members of k into one sum and the odd ones into another, both from
// zero, each step one fused multiply-add rounded to nearest even; then c += even + odd. Subnormal
// inputs and results count as 0. So an element of a product is one chain over k in steps of 32, and
// neither the size of blocks nor where a chain pauses touches its bits.
//
// Operands are packed; k is padded to 32 with zeros, rows and columns to 32.
//   left    a[m, k]: groups of 32 rows; in a group, for each step of 32 of k, a tile of rows
//           0..15 (row r at r * 64 bytes) and one of rows 16..31
//   right   b[k, n]: panels of 32 columns; in a panel, for each step of 32 of k, a tile of columns
//           0..15 and one of columns 16..31: word (p, j) holds b[2 p, j] and b[2 p + 1, j]
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/vector/table.h"

namespace piton::cpu {

inline constexpr std::int64_t kTileDepth = 32;   // of k in one step
inline constexpr std::int64_t kTileEdge = 16;    // rows or columns of one tile
inline constexpr std::int64_t kTilePair = 32;    // rows of a group, columns of a panel
inline constexpr std::int64_t kTileSquare = 64;  // rows and columns of two groups and two panels
inline constexpr std::int64_t kStepBytes = 2048;

inline std::int64_t tile_steps(std::int64_t k) { return (k + kTileDepth - 1) / kTileDepth; }
// Of one group or panel.
inline std::int64_t tile_pair_bytes(std::int64_t k) { return tile_steps(k) * kStepBytes; }
// Of a packed side with `n` rows or columns.
inline std::int64_t tile_bytes(std::int64_t n, std::int64_t k) {
  return (n + kTilePair - 1) / kTilePair * tile_pair_bytes(k);
}

// Memory that is brought to the second-level cache while something is multiplied: lines [first,
// end) of rows of `lines` cache lines each, `stride` bytes apart.
struct TileAhead {
  const std::byte* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t lines = 0;
  std::int64_t first = 0;
  std::int64_t end = 0;
};

// Where the tiles of a side are, in bytes; as packed, unless said otherwise.
struct LeftTiles {
  const std::byte* data = nullptr;
  std::int64_t group = 0;  // to the next 32 rows
  std::int64_t row = 64;
  std::int64_t step = kStepBytes;
};
struct RightTiles {
  const std::byte* data = nullptr;
  std::int64_t panel = 0;    // to the next 32 columns
  std::int64_t row = 64;     // to the next word of the same columns
  std::int64_t half = 1024;  // to columns 16..31
  std::int64_t step = kStepBytes;
};

// sums[rows, columns] = left right, or added to.
struct TileMultiply {
  std::int64_t rows = 0;     // any; sums of whole tiles of 16 rows are written
  std::int64_t columns = 0;  // any; sums of whole panels are written
  std::int64_t steps = 0;    // of k
  LeftTiles left;
  RightTiles right;
  float* sums = nullptr;  // [rows padded to 16, columns padded to 32]
  std::int64_t sums_stride = 0;
  bool adds = false;   // sums += instead of sums =
  TileAhead ahead[2];  // what will be read or written soon
};

// y[rows, columns] = sums + bias [columns] or none.
struct TileStore {
  Matrix y;
  const float* sums = nullptr;
  std::int64_t sums_stride = 0;
  const float* bias = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool streams = false;  // past the caches, seen by other threads after stop(); whole lines only
};

struct TileTable {
  // On the calling thread, between start and stop.
  void (*multiply)(const TileMultiply& product);
  // Tiles of the calling thread get their shape; are given back to the system. Not nested.
  void (*start)();
  void (*stop)();

  void (*store)(const TileStore& store);
  // y += sums, in fp32.
  void (*add)(float* y, std::int64_t y_stride, const float* sums, std::int64_t sums_stride,
              std::int64_t rows, std::int64_t columns);

  // Packed sides from rows [n, k], or columns [k, n], of bf16 or fp32.
  void (*pack_left)(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k);
  void (*pack_left_columns)(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k);
  void (*pack_right)(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k);
  void (*pack_right_rows)(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k);

  // Tile products on registers alone, and with every operand loaded from the first-level cache;
  // both return floating-point operations.
  double (*loop)(std::int64_t rounds);
  double (*loading_loop)(std::int64_t rounds);
};

// The tiles of the calling thread while it lives.
class TileScope {
 public:
  explicit TileScope(const TileTable& table) : table_(table) { table.start(); }
  ~TileScope() { table_.stop(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  const TileTable& table_;
};

namespace amx {
const TileTable& tile_table();
// Asks the system for the tiles' state, once for all threads of the process. False where the
// processor or the system does not give it.
bool permitted();
}  // namespace amx

}  // namespace piton::cpu
