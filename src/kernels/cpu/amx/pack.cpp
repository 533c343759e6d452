// Rows and columns into tiles. A tile of the left side holds 16 rows of 16 words, a word being two
// neighbours in k; one of the right side is its transpose. So whatever lies along k is copied into
// left tiles and transposed into right ones; whatever lies across is made into words first, which
// is a right tile, and transposed into left ones.
#include "kernels/cpu/amx/functions.h"
#include "kernels/cpu/dot/words.h"

namespace piton::cpu::amx {
namespace {

using Tile = __m512i[16];

PITON_INLINE void store(std::byte* to, const Tile& tile) {
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + 64 * i, tile[i]);
}

// Rows [row, row + 16) of k [first, first + 32); 0 beyond n and k.
PITON_INLINE void along(Tile& tile, const Matrix& rows, std::int64_t row, std::int64_t n,
                        std::int64_t first, std::int64_t k) {
  const std::int64_t left = k - first;
  const auto mask = static_cast<__mmask32>(left >= 32 ? 0xFFFFFFFFU : (1U << left) - 1);
  for (int i = 0; i < 16; ++i) {
    if (row + i >= n) {
      tile[i] = _mm512_setzero_si512();
      continue;
    }
    const std::int64_t at = (row + i) * rows.stride + first;
    if (rows.type == Type::kBF16) {
      tile[i] = _mm512_maskz_loadu_epi16(mask, static_cast<const std::uint16_t*>(rows.data) + at);
    } else {
      const auto* from = static_cast<const float*>(rows.data) + at;
      const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
      const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + 16);
      tile[i] = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    }
  }
}

// Words of columns [column, column + 16) of k [first, first + 32): row i holds 2 i and 2 i + 1.
PITON_INLINE void across(Tile& tile, const Matrix& columns, std::int64_t column, std::int64_t n,
                         std::int64_t first, std::int64_t k) {
  const __mmask16 mask = first_words(n > column ? n - column : 0);
  for (int i = 0; i < 16; ++i) {
    const std::int64_t at = first + 2 * i;
    tile[i] = at < k ? words(columns, at, k, column, mask) : _mm512_setzero_si512();
  }
}

template <typename Fill>
PITON_INLINE void pack(std::byte* to, std::int64_t n, std::int64_t k, Fill fill) {
  for (std::int64_t row = 0; row < n; row += kTilePair) {
    for (std::int64_t first = 0; first < k; first += kTileDepth) {
      fill(to, row, first);
      fill(to + kStepBytes / 2, row + kTileEdge, first);
      to += kStepBytes;
    }
  }
}

}  // namespace

void pack_left(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k) {
  pack(to, n, k, [&](std::byte* at, std::int64_t row, std::int64_t first) {
    Tile tile;
    along(tile, rows, row, n, first, k);
    store(at, tile);
  });
}

void pack_left_columns(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k) {
  pack(to, n, k, [&](std::byte* at, std::int64_t row, std::int64_t first) {
    Tile tile;
    across(tile, columns, row, n, first, k);
    transpose(tile);
    store(at, tile);
  });
}

void pack_right(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k) {
  pack(to, n, k, [&](std::byte* at, std::int64_t row, std::int64_t first) {
    Tile tile;
    across(tile, columns, row, n, first, k);
    store(at, tile);
  });
}

void pack_right_rows(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k) {
  pack(to, n, k, [&](std::byte* at, std::int64_t row, std::int64_t first) {
    Tile tile;
    along(tile, rows, row, n, first, k);
    transpose(tile);
    store(at, tile);
  });
}

}  // namespace piton::cpu::amx
