// Tile products, the tiles' state, and loops that measure them.
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/amx/block.h"
#include "kernels/cpu/amx/functions.h"
#include "kernels/cpu/amx/hardware.h"
#include "kernels/cpu/amx/table.h"
#include "kernels/cpu/dot/words.h"

namespace piton::cpu::amx {
namespace {

// Palette 1: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

}  // namespace

bool permitted() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

void start() {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.row_bytes[tile] = 64;
    shapes.rows[tile] = 16;
  }
  // The compiler's own intrinsic tells it that eight bytes are read, and the rest is optimized
  // away.
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}

void stop() { _tile_release(); }

void multiply(const TileMultiply& product) {
  HardwareTiles tiles;
  tile_product(tiles, product);
}

void store(const Matrix& y, const float* sums, std::int64_t sums_stride, const float* bias,
           std::int64_t rows, std::int64_t columns) {
  // Whole lines of bf16, row by row: rows of y are pages apart.
  for (std::int64_t column = 0; column < columns; column += 32) {
    const __mmask16 low = first_words(columns - column);
    const __mmask16 high =
        columns - column > 16 ? first_words(columns - column - 16) : __mmask16{0};
    const __m512 zero = _mm512_setzero_ps();
    const __m512 low_bias = bias != nullptr ? _mm512_maskz_loadu_ps(low, bias + column) : zero;
    const __m512 high_bias =
        bias != nullptr ? _mm512_maskz_loadu_ps(high, bias + column + 16) : zero;
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* from = sums + row * sums_stride + column;
      const __m512 a = _mm512_add_ps(_mm512_maskz_loadu_ps(low, from), low_bias);
      const __m512 b = _mm512_add_ps(_mm512_maskz_loadu_ps(high, from + 16), high_bias);
      const std::int64_t at = row * y.stride + column;
      if (y.type == Type::kBF16) {
        const auto mask = static_cast<__mmask32>(low) | static_cast<__mmask32>(high) << 16;
        _mm512_mask_storeu_epi16(static_cast<std::uint16_t*>(y.data) + at, mask,
                                 (__m512i)_mm512_cvtne2ps_pbh(b, a));
      } else {
        _mm512_mask_storeu_ps(static_cast<float*>(y.data) + at, low, a);
        _mm512_mask_storeu_ps(static_cast<float*>(y.data) + at + 16, high, b);
      }
    }
  }
}

void add(float* y, std::int64_t y_stride, const float* sums, std::int64_t sums_stride,
         std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; column += 16) {
      const __mmask16 mask = first_words(columns - column);
      float* to = y + row * y_stride + column;
      const __m512 more = _mm512_maskz_loadu_ps(mask, sums + row * sums_stride + column);
      _mm512_mask_storeu_ps(to, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), more));
    }
  }
}

double loop(std::int64_t rounds) {
  start();
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  stop();
  return 4.0 * 2 * 16 * 16 * 32 * static_cast<double>(rounds);
}

// The loop of a product, whose operands (16 KiB) are in the first-level cache.
double loading_loop(std::int64_t rounds) {
  constexpr int kSteps = 4;
  alignas(64) static constexpr std::uint16_t kOperand[kSteps * kStepBytes / 2] = {};
  const auto* operand = reinterpret_cast<const std::byte*>(kOperand);
  start();
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::byte* at = operand + round % kSteps * kStepBytes;
    _tile_loadd(6, at, 64);
    _tile_loadd(4, at, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, at + 1024, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, at + 1024, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  stop();
  return 4.0 * 2 * 16 * 16 * 32 * static_cast<double>(rounds);
}

const TileTable& tile_table() {
  static constexpr TileTable kTable{.multiply = multiply,
                                    .start = start,
                                    .stop = stop,
                                    .store = store,
                                    .add = add,
                                    .pack_left = pack_left,
                                    .pack_left_columns = pack_left_columns,
                                    .pack_right = pack_right,
                                    .pack_right_rows = pack_right_rows,
                                    .loop = loop,
                                    .loading_loop = loading_loop};
  return kTable;
}

}  // namespace piton::cpu::amx
