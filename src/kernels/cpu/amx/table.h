// Products by tiles (AMX, tdpbf16ps): C[16, 16] += A[16, 32] B[32, 16], bf16 by bf16 into fp32.
//
// The instruction sums the products of even k and those of odd k separately, both from zero, each
// step one fused multiply-add rounded to nearest even; then c += even + odd. Subnormal inputs and
// results count as 0. So an element of a product is one chain over k in steps of 32. Neither the
// size of blocks nor the places where a chain pauses affect its bits.
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
// Bytes of one group or panel.
inline std::int64_t tile_pair_bytes(std::int64_t k) { return tile_steps(k) * kStepBytes; }
// Bytes of a packed side with `n` rows or columns.
inline std::int64_t tile_bytes(std::int64_t n, std::int64_t k) {
  return (n + kTilePair - 1) / kTilePair * tile_pair_bytes(k);
}

// Memory to prefetch into the second-level cache during a product: lines [first, end) of rows of
// `lines` cache lines each, `stride` bytes apart.
struct TileAhead {
  const std::byte* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t lines = 0;
  std::int64_t first = 0;
  std::int64_t end = 0;
};

// Where the tiles of a side are, in bytes; the defaults are those of a packed side.
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

// sums[rows, columns] = left right, or += if `adds`.
struct TileMultiply {
  std::int64_t rows = 0;     // any; written in whole tiles of 16 rows
  std::int64_t columns = 0;  // any; written in whole panels
  std::int64_t steps = 0;    // of k
  LeftTiles left;
  RightTiles right;
  float* sums = nullptr;  // [rows padded to 16, columns padded to 32]
  std::int64_t sums_stride = 0;
  bool adds = false;   // sums += instead of sums =
  TileAhead ahead[2];  // memory that will be read or written soon
};

// y[rows, columns] = sums + bias [columns], if there is one.
struct TileStore {
  Matrix y;
  const float* sums = nullptr;
  std::int64_t sums_stride = 0;
  const float* bias = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool streams = false;  // non-temporal, visible to other threads after stop(); whole lines only
};

// The end of a square of a symmetric product: y = factor sums + addend_factor addend, plus
// `diagonal` on the diagonal, each element rounded to bf16 once. Writes the square from (row,
// column) on of y, and its transpose from (column, row) on; of a square on the diagonal, the lower
// triangle counts.
struct TileMirror {
  std::uint16_t* y = nullptr;  // [n, n]
  std::int64_t y_stride = 0;
  const std::uint16_t* addend = nullptr;  // [n, n], its lower triangle; or not given
  std::int64_t addend_stride = 0;
  float* sums = nullptr;     // [kTileSquare, kTileSquare], aligned to 64 bytes; overwritten
  std::int64_t row = 0;      // a multiple of kTileSquare, at least `column`
  std::int64_t column = 0;   // a multiple of kTileSquare
  std::int64_t rows = 0;     // at most kTileSquare
  std::int64_t columns = 0;  // at most kTileSquare
  float factor = 1;
  float addend_factor = 1;
  float diagonal = 0;
};

struct TileTable {
  // Only between start and stop, on the same thread.
  void (*multiply)(const TileMultiply& product);
  // Configures and releases the tiles of the calling thread. Not nested.
  void (*start)();
  void (*stop)();

  void (*store)(const TileStore& store);
  void (*mirror)(const TileMirror& mirror);
  // y += sums, in fp32.
  void (*add)(float* y, std::int64_t y_stride, const float* sums, std::int64_t sums_stride,
              std::int64_t rows, std::int64_t columns);

  // Packs a side from rows [n, k], or columns [k, n], of bf16 or fp32.
  void (*pack_left)(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k);
  void (*pack_left_columns)(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k);
  void (*pack_right)(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k);
  void (*pack_right_rows)(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k);

  // Tile products on registers only, and with every operand loaded from the first-level cache. Both
  // return the number of floating-point operations.
  double (*loop)(std::int64_t rounds);
  double (*loading_loop)(std::int64_t rounds);
};

// Keeps the tiles of the calling thread configured while it exists.
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
// Asks the system for the tile state, once for all threads of the process. False if the processor
// or the system does not grant it.
bool permitted();
}  // namespace amx

}  // namespace piton::cpu
