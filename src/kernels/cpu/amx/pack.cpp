// Rows and columns into tiles. A tile of the left side holds 16 rows of 16 words, a word being two
// neighbors in k; one of the right side is its transpose. So what runs along k is copied into
// left tiles and transposed into right ones; what runs across k is made into words first, which
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

// Words of columns [column, column + 32) of k [first, first + 32) as two tiles: row i holds k 2 i
// and 2 i + 1.
PITON_INLINE void across(Tile& low, Tile& high, const Matrix& columns, std::int64_t column,
                         std::int64_t n, std::int64_t first, std::int64_t k) {
  if (columns.type == Type::kBF16 && column + kTilePair <= n && first + kTileDepth <= k) {
    const auto* from =
        static_cast<const std::uint16_t*>(columns.data) + first * columns.stride + column;
    // The same columns of the next step: too far apart for the processor to foresee.
    const std::int64_t next = kTileDepth * columns.stride;
    for (int i = 0; i < 16; ++i, from += 2 * columns.stride) {
      _mm_prefetch(from + next, _MM_HINT_T0);
      _mm_prefetch(from + next + columns.stride, _MM_HINT_T0);
      interleave(low[i], high[i], from, from + columns.stride);
    }
    return;
  }
  const std::int64_t left = n - column;
  const __mmask16 low_mask = first_words(left);
  const __mmask16 high_mask = first_words(left > kTileEdge ? left - kTileEdge : 0);
  for (int i = 0; i < 16; ++i) {
    const std::int64_t at = first + 2 * i;
    const bool given = at < k;
    low[i] = given ? words(columns, at, k, column, low_mask) : _mm512_setzero_si512();
    high[i] = given && high_mask != 0 ? words(columns, at, k, column + kTileEdge, high_mask)
                                      : _mm512_setzero_si512();
  }
}

template <bool transposes>
PITON_INLINE void store(std::byte* to, Tile& low, Tile& high) {
  if constexpr (transposes) {
    transpose(low);
    transpose(high);
  }
  store(to, low);
  store(to + kStepBytes / 2, high);
}

template <bool transposes>
PITON_INLINE void pack_along(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k) {
  for (std::int64_t row = 0; row < n; row += kTilePair) {
    for (std::int64_t first = 0; first < k; first += kTileDepth, to += kStepBytes) {
      Tile low;
      Tile high;
      along(low, rows, row, n, first, k);
      along(high, rows, row + kTileEdge, n, first, k);
      store<transposes>(to, low, high);
    }
  }
}

// All columns of a step together: their lines are adjacent, those of the next step are pages apart.
template <bool transposes>
PITON_INLINE void pack_across(std::byte* to, const Matrix& columns, std::int64_t n,
                              std::int64_t k) {
  for (std::int64_t first = 0; first < k; first += kTileDepth, to += kStepBytes) {
    for (std::int64_t column = 0; column < n; column += kTilePair) {
      Tile low;
      Tile high;
      across(low, high, columns, column, n, first, k);
      store<transposes>(to + column / kTilePair * tile_pair_bytes(k), low, high);
    }
  }
}

}  // namespace

void pack_left(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k) {
  pack_along<false>(to, rows, n, k);
}

void pack_left_columns(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k) {
  pack_across<true>(to, columns, n, k);
}

void pack_right(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k) {
  pack_across<false>(to, columns, n, k);
}

void pack_right_rows(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k) {
  pack_along<true>(to, rows, n, k);
}

}  // namespace piton::cpu::amx
