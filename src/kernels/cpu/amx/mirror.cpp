// The end of a square of a symmetric product: its terms, its rounding, and its transpose, while its
// sums are in the first-level cache.
#include "kernels/cpu/amx/functions.h"
#include "kernels/cpu/amx/turn.h"

namespace piton::cpu::amx {
namespace {

constexpr int kHalf = 32;  // elements of one vector of bf16

// The sums of a square take 16 KiB: when they are rounded, in place, the second half is free.
constexpr std::int64_t kElements = kTileSquare * kTileSquare;
std::uint16_t* rounded(const TileMirror& m) { return reinterpret_cast<std::uint16_t*>(m.sums); }
std::uint16_t* turned(const TileMirror& m) { return rounded(m) + kElements; }

__mmask32 first_elements(std::int64_t count) {
  return count >= kHalf ? 0xFFFFFFFFU : count <= 0 ? 0U : (1U << count) - 1;
}

PITON_INLINE __m512 widened(__m256i bf16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}

// A row beyond the square becomes 0.
template <bool adds, bool ragged>
PITON_INLINE void round_square(const TileMirror& m) {
  std::uint16_t* to = rounded(m);
  const __m512 factor = _mm512_set1_ps(m.factor);
  const __m512 addend_factor = _mm512_set1_ps(m.addend_factor);
  const __m512 diagonal = _mm512_set1_ps(m.row == m.column ? m.diagonal : 0.0F);
  const std::uint16_t* addend = adds ? m.addend + m.row * m.addend_stride + m.column : nullptr;
  const std::int64_t rows = ragged ? m.rows : kTileSquare;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int half = 0; half < 2; ++half) {
      const float* sums = m.sums + row * kTileSquare + half * kHalf;
      // Plain loads: masked loads wait until earlier tile stores have reached the cache.
      __m512 low = _mm512_mul_ps(_mm512_loadu_ps(sums), factor);
      __m512 high = _mm512_mul_ps(_mm512_loadu_ps(sums + 16), factor);
      if constexpr (adds) {
        const std::uint16_t* from = addend + row * m.addend_stride + half * kHalf;
        const __m512i more =
            ragged ? _mm512_maskz_loadu_epi16(first_elements(m.columns - half * kHalf), from)
                   : _mm512_loadu_si512(from);
        low = _mm512_fmadd_ps(widened(_mm512_castsi512_si256(more)), addend_factor, low);
        high = _mm512_fmadd_ps(widened(_mm512_extracti64x4_epi64(more, 1)), addend_factor, high);
      }
      const std::int64_t on = row - half * kHalf;  // the element on the diagonal
      const auto bit = on >= 0 && on < kHalf ? 1U << on : 0U;
      low = _mm512_mask_add_ps(low, static_cast<__mmask16>(bit), low, diagonal);
      high = _mm512_mask_add_ps(high, static_cast<__mmask16>(bit >> 16), high, diagonal);
      _mm512_store_si512(to + row * kTileSquare + half * kHalf,
                         (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
  }
  for (std::int64_t i = rows * kTileSquare; i < kElements; i += kHalf) {
    _mm512_store_si512(to + i, _mm512_setzero_si512());
  }
}

// Writes a square of `rows` x `columns` from (row, column) of y on.
PITON_INLINE void write_square(const TileMirror& m, std::int64_t row, std::int64_t column,
                               std::int64_t rows, std::int64_t columns, const std::uint16_t* from) {
  const __mmask32 masks[2] = {first_elements(columns), first_elements(columns - kHalf)};
  std::uint16_t* to = m.y + row * m.y_stride + column;
  for (std::int64_t r = 0; r < rows; ++r, to += m.y_stride) {
    for (int half = 0; half < 2; ++half) {
      const __m512i x = _mm512_load_si512(from + r * kTileSquare + half * kHalf);
      _mm512_mask_storeu_epi16(to + half * kHalf, masks[half], x);
    }
  }
}

// The transpose, through `words`, kStepBytes in the first-level cache.
PITON_INLINE void turn_square(std::uint16_t* to, std::int64_t stride, const std::uint16_t* from,
                              std::byte* words) {
  for (std::int64_t row = 0; row < kTileSquare; row += kHalf) {
    for (std::int64_t column = 0; column < kTileSquare; column += kHalf) {
      turn_block(to + column * stride + row, stride, from + row * kTileSquare + column, kTileSquare,
                 words, [](const std::uint16_t*) {});
    }
  }
}

// The transpose in turned().
void turn(const TileMirror& m) {
  alignas(64) std::byte words[kStepBytes];
  turn_square(turned(m), kTileSquare, rounded(m), words);
}

// Replaces what is above the diagonal.
void mirror_inside(const TileMirror& m) {
  turn(m);
  for (std::int64_t row = 0; row < kTileSquare; ++row) {
    for (int half = 0; half < 2; ++half) {
      const __mmask32 lower = first_elements(row + 1 - half * kHalf);
      const std::int64_t at = row * kTileSquare + half * kHalf;
      std::uint16_t* x = rounded(m) + at;
      _mm512_store_si512(x, _mm512_mask_blend_epi16(lower, _mm512_load_si512(turned(m) + at),
                                                    _mm512_load_si512(x)));
    }
  }
}

}  // namespace

void mirror(const TileMirror& m) {
  const bool ragged = m.rows < kTileSquare || m.columns < kTileSquare;
  if (m.addend == nullptr) {
    ragged ? round_square<false, true>(m) : round_square<false, false>(m);
  } else {
    ragged ? round_square<true, true>(m) : round_square<true, false>(m);
  }
  if (m.row == m.column) {
    mirror_inside(m);
    return write_square(m, m.row, m.column, m.rows, m.columns, rounded(m));
  }
  write_square(m, m.row, m.column, m.rows, m.columns, rounded(m));
  if (ragged) {
    turn(m);
    return write_square(m, m.column, m.row, m.columns, m.rows, turned(m));
  }
  turn_square(m.y + m.column * m.y_stride + m.row, m.y_stride, rounded(m),
              reinterpret_cast<std::byte*>(turned(m)));
}

}  // namespace piton::cpu::amx
