// Packs rows and columns into tiles. A tile of the left side has 16 rows of 16 words; a word is two
// neighbors in k. A tile of the right side is the transpose of that. Data along k is copied into
// left tiles and transposed into right tiles. Data across k is first paired into words, which gives
// a right tile, and transposed into left tiles.
#include "kernels/cpu/amx/functions.h"
#include "kernels/cpu/amx/turn.h"
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

// Words of columns [column, column + 32) of k [first, first + 32) as two tiles: row i has k 2 i and
// 2 i + 1.
PITON_INLINE void across(Tile& low, Tile& high, const Matrix& columns, std::int64_t column,
                         std::int64_t n, std::int64_t first, std::int64_t k) {
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

// Packs all columns of a step together: their lines are adjacent, those of the next step are pages
// apart. block(to, from) packs a whole 32 x 32 in bf16; others take the general path.
template <bool transposes, typename Block>
PITON_INLINE void pack_across(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k,
                              Block block) {
  const bool bf16 = columns.type == Type::kBF16;
  for (std::int64_t first = 0; first < k; first += kTileDepth, to += kStepBytes) {
    for (std::int64_t column = 0; column < n; column += kTilePair) {
      std::byte* tiles = to + column / kTilePair * tile_pair_bytes(k);
      if (bf16 && column + kTilePair <= n && first + kTileDepth <= k) {
        block(tiles,
              static_cast<const std::uint16_t*>(columns.data) + first * columns.stride + column,
              columns.stride);
        continue;
      }
      Tile low;
      Tile high;
      across(low, high, columns, column, n, first, k);
      store<transposes>(tiles, low, high);
    }
  }
}

// Prefetches the same columns of the next step to the second level: they are too far apart for the
// hardware prefetcher, and in the first level, rows a multiple of 2 KiB apart evict each other.
PITON_INLINE void bring_next(const std::uint16_t* row, std::int64_t stride) {
  _mm_prefetch(row + kTileDepth * stride, _MM_HINT_T1);
}

// 32 columns of 32 rows as words.
PITON_INLINE void words_of_block(std::byte* to, const std::uint16_t* from, std::int64_t stride) {
  for (int pair = 0; pair < 16; ++pair, from += 2 * stride, to += 64) {
    bring_next(from, stride);
    bring_next(from + stride, stride);
    __m512i low;
    __m512i high;
    interleave(low, high, from, from + stride);
    _mm512_store_si512(to, low);
    _mm512_store_si512(to + kStepBytes / 2, high);
  }
}

// The same, transposed.
PITON_INLINE void turn_next_block(std::byte* to, const std::uint16_t* from, std::int64_t stride) {
  alignas(64) std::byte words[kStepBytes];
  turn_block(reinterpret_cast<std::uint16_t*>(to), kTileDepth, from, stride, words,
             [&](const std::uint16_t* row) { bring_next(row, stride); });
}

// Copies lines of 32 whole rows in bf16, a few lines of a row at a time.
PITON_INLINE void copy_group(std::byte* to, const std::uint16_t* from, std::int64_t stride,
                             std::int64_t steps) {
  constexpr std::int64_t kSteps = 4;
  for (std::int64_t first = 0; first < steps; first += kSteps) {
    const std::int64_t end = first + kSteps < steps ? first + kSteps : steps;
    for (int row = 0; row < 32; ++row) {
      for (std::int64_t step = first; step < end; ++step) {
        _mm512_store_si512(to + step * kStepBytes + row * 64,
                           _mm512_loadu_si512(from + row * stride + step * kTileDepth));
      }
    }
  }
}

// The same, transposed: words of 16 rows side by side.
PITON_INLINE void turn_group(std::byte* to, const std::uint16_t* from, std::int64_t stride,
                             std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step, to += kStepBytes) {
    for (int half = 0; half < 2; ++half) {
      const auto* rows =
          reinterpret_cast<const std::byte*>(from + half * kTileEdge * stride + step * kTileDepth);
      for (int four = 0; four < 4; ++four) {
        turn_four(to + half * kStepBytes / 2 + four * 4 * 64, 64, rows + four * 16, 2 * stride);
      }
    }
  }
}

// group(to, from, stride, steps) packs 32 whole rows in bf16; others take the general path.
template <bool transposes, typename Group>
PITON_INLINE void pack_groups(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k,
                              Group group) {
  Matrix rest = rows;
  if (rows.type == Type::kBF16 && k % kTileDepth == 0) {
    auto* from = static_cast<std::uint16_t*>(rows.data);
    for (; n >= kTilePair; n -= kTilePair, to += tile_pair_bytes(k)) {
      group(to, from, rows.stride, tile_steps(k));
      from += kTilePair * rows.stride;
    }
    rest.data = from;
  }
  if (n > 0) pack_along<transposes>(to, rest, n, k);
}

}  // namespace

void pack_left(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k) {
  pack_groups<false>(to, rows, n, k, copy_group);
}

void pack_left_columns(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k) {
  pack_across<true>(to, columns, n, k, turn_next_block);
}

void pack_right(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k) {
  pack_across<false>(to, columns, n, k, words_of_block);
}

void pack_right_rows(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k) {
  pack_groups<true>(to, rows, n, k, turn_group);
}

}  // namespace piton::cpu::amx
