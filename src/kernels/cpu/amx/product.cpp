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
  // The intrinsic tells the compiler that eight bytes are read, so the others would be optimized
  // away.
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}

void stop() {
  _tile_release();
  _mm_sfence();
}

void multiply(const TileMultiply& product) {
  HardwareTiles tiles;
  tile_product(tiles, product);
}

namespace {

__m512i rounded(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

// Whole squares, row by row with all columns of a row at once, because rows of y are pages apart.
// Plain loads: masked loads wait until earlier tile stores have reached the cache.
template <bool streams, bool biased>
void store_square(const TileStore& s) {
  __m512 bias[4] = {};
  for (int i = 0; biased && i < 4; ++i) bias[i] = _mm512_loadu_ps(s.bias + 16 * i);
  const float* from = s.sums;
  auto* to = static_cast<std::uint16_t*>(s.y.data);
  for (std::int64_t row = 0; row < s.rows; ++row, from += s.sums_stride, to += s.y.stride) {
    for (int half = 0; half < 2; ++half) {
      __m512 low = _mm512_loadu_ps(from + 32 * half);
      __m512 high = _mm512_loadu_ps(from + 32 * half + 16);
      if constexpr (biased) {
        low = _mm512_add_ps(low, bias[2 * half]);
        high = _mm512_add_ps(high, bias[2 * half + 1]);
      }
      if constexpr (streams) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + 32 * half), rounded(low, high));
      } else {
        _mm512_storeu_si512(to + 32 * half, rounded(low, high));
      }
    }
  }
}

// Any columns and type.
void store_rows(const TileStore& s) {
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t column = 0; column < s.columns; column += 32) {
      const std::int64_t left = s.columns - column;
      const __mmask16 low = first_words(left);
      const __mmask16 high = left > 16 ? first_words(left - 16) : __mmask16{0};
      const float* from = s.sums + row * s.sums_stride + column;
      __m512 a = _mm512_maskz_loadu_ps(low, from);
      __m512 b = _mm512_maskz_loadu_ps(high, from + 16);
      if (s.bias != nullptr) {
        a = _mm512_add_ps(a, _mm512_maskz_loadu_ps(low, s.bias + column));
        b = _mm512_add_ps(b, _mm512_maskz_loadu_ps(high, s.bias + column + 16));
      }
      const std::int64_t at = row * s.y.stride + column;
      if (s.y.type == Type::kBF16) {
        const auto mask = static_cast<__mmask32>(low) | static_cast<__mmask32>(high) << 16;
        _mm512_mask_storeu_epi16(static_cast<std::uint16_t*>(s.y.data) + at, mask, rounded(a, b));
      } else {
        _mm512_mask_storeu_ps(static_cast<float*>(s.y.data) + at, low, a);
        _mm512_mask_storeu_ps(static_cast<float*>(s.y.data) + at + 16, high, b);
      }
    }
  }
}

}  // namespace

void store(const TileStore& s) {
  if (s.columns != kTileSquare || s.y.type != Type::kBF16) return store_rows(s);
  if (s.streams)
    return s.bias != nullptr ? store_square<true, true>(s) : store_square<true, false>(s);
  s.bias != nullptr ? store_square<false, true>(s) : store_square<false, false>(s);
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

namespace {

// Bits like those of data: random signs and mantissas, magnitudes from 1/2 to 2. Some processors
// slow down for them: with zeros this loop was 21 % faster on one.
struct Operands {
  static constexpr int kSteps = 4;
  alignas(64) std::uint16_t left[kSteps * kStepBytes / 2] = {};
  alignas(64) std::uint16_t right[kSteps * kStepBytes / 2] = {};

  constexpr Operands() {
    std::uint32_t state = 1;
    const auto draw = [&state] {
      state = state * 1664525 + 1013904223;
      return static_cast<std::uint16_t>(0x3F00U | (state >> 16 & 0x80FFU));
    };
    for (std::uint16_t& x : left) x = draw();
    for (std::uint16_t& x : right) x = draw();
  }
};

}  // namespace

// The loop of a product, with operands (16 KiB) from the first-level cache.
double loading_loop(std::int64_t rounds) {
  static constexpr Operands kOperands;
  const auto* left = reinterpret_cast<const std::byte*>(kOperands.left);
  const auto* right = reinterpret_cast<const std::byte*>(kOperands.right);
  start();
  for (std::int64_t round = 0; round < rounds; ++round) {
    const std::int64_t at = round % Operands::kSteps * kStepBytes;
    _tile_loadd(6, right + at, 64);
    _tile_loadd(4, left + at, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, right + at + 1024, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, left + at + 1024, 64);
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
                                    .mirror = mirror,
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
