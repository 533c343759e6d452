// Transposes of bf16. Included by files of this folder only: they are compiled for AVX512.
#pragma once

#include "kernels/cpu/amx/table.h"
#include "kernels/cpu/dot/words.h"

namespace piton::cpu::amx {

// Four columns of 16 rows of words, `stride` bytes apart, as four rows, `to_stride` bytes apart.
// Lane l of vector j has row 4 l + j, so that only transposes of 4 x 4 inside of lanes remain.
PITON_INLINE void turn_four(std::byte* to, std::int64_t to_stride, const std::byte* words,
                            std::int64_t stride) {
  __m512i x[4];
  for (int j = 0; j < 4; ++j) {
    const auto row = [&](int lane) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(words + (4 * lane + j) * stride));
    };
    x[j] = _mm512_castsi128_si512(row(0));
    x[j] = _mm512_mask_broadcast_i32x4(x[j], 0x00F0, row(1));
    x[j] = _mm512_mask_broadcast_i32x4(x[j], 0x0F00, row(2));
    x[j] = _mm512_mask_broadcast_i32x4(x[j], 0xF000, row(3));
  }
  const __m512i low[2] = {_mm512_unpacklo_epi32(x[0], x[1]), _mm512_unpacklo_epi32(x[2], x[3])};
  const __m512i high[2] = {_mm512_unpackhi_epi32(x[0], x[1]), _mm512_unpackhi_epi32(x[2], x[3])};
  _mm512_storeu_si512(to, _mm512_unpacklo_epi64(low[0], low[1]));
  _mm512_storeu_si512(to + to_stride, _mm512_unpackhi_epi64(low[0], low[1]));
  _mm512_storeu_si512(to + 2 * to_stride, _mm512_unpacklo_epi64(high[0], high[1]));
  _mm512_storeu_si512(to + 3 * to_stride, _mm512_unpackhi_epi64(high[0], high[1]));
}

// to[c, r] = from[r, c] of 32 rows and 32 columns, through `words`, kStepBytes in the first-level
// cache. Strides in elements. bring(row) is called for each row before it is read.
template <typename Bring>
PITON_INLINE void turn_block(std::uint16_t* to, std::int64_t to_stride, const std::uint16_t* from,
                             std::int64_t stride, std::byte* words, Bring bring) {
  for (int pair = 0; pair < 16; ++pair, from += 2 * stride) {
    bring(from);
    bring(from + stride);
    const __m512i a = _mm512_loadu_si512(from);
    const __m512i b = _mm512_loadu_si512(from + stride);
    // Lanes hold columns 0, 8, 16 and 24 on, and 4, 12, 20 and 28 on.
    _mm512_store_si512(words + pair * 128, _mm512_unpacklo_epi16(a, b));
    _mm512_store_si512(words + pair * 128 + 64, _mm512_unpackhi_epi16(a, b));
  }
  auto* rows = reinterpret_cast<std::byte*>(to);
  for (int four = 0; four < 8; ++four) {
    turn_four(rows + four * 8 * to_stride, 2 * to_stride, words + four % 2 * 64 + four / 2 * 16,
              128);
  }
}

}  // namespace piton::cpu::amx
