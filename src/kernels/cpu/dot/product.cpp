// Products of pairs: tiles of 6 rows by 64 columns in registers.
//
// 6 x 4 vectors of sums and 4 of the right side use 28 of 32 registers; the left side is broadcast
// from memory. A step of one pair has 24 dot products and 10 loads; at two loads per cycle, the
// loads are not the bottleneck.
#include <immintrin.h>

#include "kernels/cpu/dot/functions.h"
#include "kernels/cpu/dot/table.h"

#define PITON_INLINE static inline __attribute__((always_inline))

namespace piton::cpu::v4_bf16 {
namespace {

PITON_INLINE __m512 dot(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

PITON_INLINE int word(const std::uint16_t* at) {
  int value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}

// Writes sums with a bias, as bf16, or with missing columns at the right edge.
template <int rows, int wide>
PITON_INLINE void finish(__m512 (&sum)[rows][wide], const DotOutput& c, std::int64_t row,
                         std::int64_t column, __mmask16 last) {
  for (int r = 0; r < rows; ++r) {
    for (int w = 0; w < wide; ++w) {
      const __mmask16 mask = w == wide - 1 ? last : static_cast<__mmask16>(0xFFFF);
      __m512 value = sum[r][w];
      const std::int64_t at = column + w * 16;
      if (c.bias != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, c.bias + at));
      if (c.type == Type::kBF16) {
        auto* to = static_cast<std::uint16_t*>(c.data) + (row + r) * c.stride + at;
        _mm256_mask_storeu_epi16(to, mask, (__m256i)_mm512_cvtneps_pbh(value));
      } else {
        _mm512_mask_storeu_ps(static_cast<float*>(c.data) + (row + r) * c.stride + at, mask, value);
      }
    }
  }
}

// Pairs from which on the addend of the next tile, in another level of the cache, is fetched during
// this one.
constexpr std::int64_t kLongProduct = 128;

// Short products (those of attention have 32 pairs) spend a tenth of their time outside of the
// loop. So sums start at the addend, and whole fp32 tiles are stored without further tests. Each
// pair prefetches `ahead` cache lines from `next` on.
template <int rows, int wide, int ahead = 0>
void tile(std::int64_t pairs, const std::uint16_t* a, std::int64_t a_row, std::int64_t a_pair,
          const Pair* b, std::int64_t b_step, const DotOutput& c, std::int64_t row,
          std::int64_t column, __mmask16 last, const Pair* next = nullptr) {
  __m512 sum[rows][wide];
  if (c.addend == nullptr) {
    for (int r = 0; r < rows; ++r) {
      for (int w = 0; w < wide; ++w) sum[r][w] = _mm512_setzero_ps();
    }
  } else {
    const float* from = c.addend + row * c.addend_stride + column;
    if (pairs >= kLongProduct) {
      for (int r = rows; r < 2 * rows; ++r) {
        for (int w = 0; w < wide; ++w)
          _mm_prefetch(from + r * c.addend_stride + w * 16, _MM_HINT_T1);
      }
    }
    for (int r = 0; r < rows; ++r) {
      for (int w = 0; w < wide - 1; ++w) sum[r][w] = _mm512_loadu_ps(from + w * 16);
      sum[r][wide - 1] = _mm512_maskz_loadu_ps(last, from + (wide - 1) * 16);
      from += c.addend_stride;
    }
  }
  for (std::int64_t p = 0; p < pairs; ++p) {
    for (int line = 0; line < ahead; ++line) _mm_prefetch(next + line * 16, _MM_HINT_T1);
    next += ahead * 16;
    __m512i right[wide];
    for (int w = 0; w < wide; ++w) right[w] = _mm512_loadu_si512(b + w * 16);
    for (int r = 0; r < rows; ++r) {
      __m512i left = _mm512_set1_epi32(word(a + r * a_row));
      asm("" : "+v"(left));  // clang 16 crashes where it may see through the broadcast
      for (int w = 0; w < wide; ++w) sum[r][w] = dot(sum[r][w], left, right[w]);
    }
    a += a_pair;
    b += b_step;
  }
  if (c.bias != nullptr || c.type != Type::kF32 || last != 0xFFFF) {
    return finish(sum, c, row, column, last);
  }
  float* to = static_cast<float*>(c.data) + row * c.stride + column;
  for (int r = 0; r < rows; ++r) {
    for (int w = 0; w < wide; ++w) _mm512_storeu_ps(to + w * 16, sum[r][w]);
    to += c.stride;
  }
}

// Rows of one panel of `wide` vectors.
template <int wide>
void panel(std::int64_t m, std::int64_t pairs, const std::uint16_t* a, std::int64_t a_row,
           std::int64_t a_pair, std::int64_t a_group, const Pair* b, std::int64_t b_step,
           const DotOutput& c, std::int64_t column, __mmask16 last) {
  std::int64_t row = 0;
  for (; row + 6 <= m; row += 6, a += a_group) {
    tile<6, wide>(pairs, a, a_row, a_pair, b, b_step, c, row, column, last);
  }
  switch (m - row) {
    case 5:
      return tile<5, wide>(pairs, a, a_row, a_pair, b, b_step, c, row, column, last);
    case 4:
      return tile<4, wide>(pairs, a, a_row, a_pair, b, b_step, c, row, column, last);
    case 3:
      return tile<3, wide>(pairs, a, a_row, a_pair, b, b_step, c, row, column, last);
    case 2:
      return tile<2, wide>(pairs, a, a_row, a_pair, b, b_step, c, row, column, last);
    case 1:
      return tile<1, wide>(pairs, a, a_row, a_pair, b, b_step, c, row, column, last);
    default:
      return;
  }
}

PITON_INLINE void panels(std::int64_t m, std::int64_t n, std::int64_t pairs, const std::uint16_t* a,
                         std::int64_t a_row, std::int64_t a_pair, std::int64_t a_group,
                         const Pair* b, std::int64_t b_panel, std::int64_t first,
                         const DotOutput& c) {
  for (std::int64_t column = 0; column < n; column += kPanel, b += b_panel) {
    const std::int64_t width = n - column < kPanel ? n - column : kPanel;
    const auto last = static_cast<__mmask16>(width % 16 == 0 ? 0xFFFF : (1 << (width % 16)) - 1);
    switch ((width + 15) / 16) {
      case 4:
        panel<4>(m, pairs, a, a_row, a_pair, a_group, b + first * 64, 64, c, column, last);
        break;
      case 3:
        panel<3>(m, pairs, a, a_row, a_pair, a_group, b + first * 48, 48, c, column, last);
        break;
      case 2:
        panel<2>(m, pairs, a, a_row, a_pair, a_group, b + first * 32, 32, c, column, last);
        break;
      default:
        panel<1>(m, pairs, a, a_row, a_pair, a_group, b + first * 16, 16, c, column, last);
        break;
    }
  }
}

// One whole panel by m <= 6 rows.
template <int ahead>
void streamed(std::int64_t m, std::int64_t pairs, const std::uint16_t* a, std::int64_t a_row,
              const Pair* b, const Pair* next, const DotOutput& c, std::int64_t row) {
  const auto all = static_cast<__mmask16>(0xFFFF);
  switch (m) {
    case 6:
      return tile<6, 4, ahead>(pairs, a, a_row, 2, b, kPanel, c, row, 0, all, next);
    case 5:
      return tile<5, 4, ahead>(pairs, a, a_row, 2, b, kPanel, c, row, 0, all, next);
    case 4:
      return tile<4, 4, ahead>(pairs, a, a_row, 2, b, kPanel, c, row, 0, all, next);
    case 3:
      return tile<3, 4, ahead>(pairs, a, a_row, 2, b, kPanel, c, row, 0, all, next);
    case 2:
      return tile<2, 4, ahead>(pairs, a, a_row, 2, b, kPanel, c, row, 0, all, next);
    default:
      return tile<1, 4, ahead>(pairs, a, a_row, 2, b, kPanel, c, row, 0, all, next);
  }
}

}  // namespace

void product_streamed(std::int64_t m, std::int64_t pairs, const std::uint16_t* a,
                      std::int64_t a_row, const Pair* b, const Pair* next, const DotOutput& c) {
  const std::int64_t groups = (m + 5) / 6;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t row = m * group / groups;
    const std::int64_t rows = m * (group + 1) / groups - row;
    const std::uint16_t* left = a + row * a_row;
    if (next == nullptr) {
      streamed<0>(rows, pairs, left, a_row, b, b, c, row);
    } else if (groups == 1) {
      streamed<4>(rows, pairs, left, a_row, b, next, c, row);
    } else if (groups == 2) {
      streamed<2>(rows, pairs, left, a_row, b, next + group * pairs * 32, c, row);
    } else {
      streamed<1>(rows, pairs, left, a_row, b, next + group * pairs * 16, c, row);
    }
  }
}

void product(std::int64_t m, std::int64_t n, std::int64_t pairs, const std::uint16_t* a,
             std::int64_t a_row, std::int64_t a_pair, const Pair* b, std::int64_t b_panel,
             std::int64_t first, const DotOutput& c) {
  panels(m, n, pairs, a, a_row, a_pair, 6 * a_row, b, b_panel, first, c);
}

void product_columns(std::int64_t m, std::int64_t n, std::int64_t pairs, const std::uint16_t* a,
                     std::int64_t a_row, std::int64_t a_pair, const Pair* b, std::int64_t b_step,
                     const DotOutput& c) {
  const auto all = static_cast<__mmask16>(0xFFFF);
  switch (n / 16) {
    case 4:
      return panel<4>(m, pairs, a, a_row, a_pair, 6 * a_row, b, b_step, c, 0, all);
    case 3:
      return panel<3>(m, pairs, a, a_row, a_pair, 6 * a_row, b, b_step, c, 0, all);
    case 2:
      return panel<2>(m, pairs, a, a_row, a_pair, 6 * a_row, b, b_step, c, 0, all);
    default:
      return panel<1>(m, pairs, a, a_row, a_pair, 6 * a_row, b, b_step, c, 0, all);
  }
}

void product_packed(std::int64_t m, std::int64_t n, std::int64_t pairs, const Pair* a,
                    std::int64_t a_pairs, const Pair* b, std::int64_t b_panel, std::int64_t first,
                    const DotOutput& c) {
  panels(m, n, pairs, reinterpret_cast<const std::uint16_t*>(a), 2, 2 * kLeftPanel,
         2 * a_pairs * kLeftPanel, b, b_panel, first, c);
}

// Twelve independent sums, named so that they stay in registers.
double loop(std::int64_t rounds) {
  __m512i a = _mm512_set1_epi32(0x3F803F80);
  __m512i b = _mm512_set1_epi32(0x3C003C00);
  asm volatile("" : "+v"(a), "+v"(b));  // unknown to the compiler
  const __m512 zero = _mm512_setzero_ps();
  __m512 s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero, s5 = zero, s6 = zero, s7 = zero,
         s8 = zero, s9 = zero, s10 = zero, s11 = zero;
  for (std::int64_t round = 0; round < rounds; ++round) {
    s0 = dot(s0, a, b);
    s1 = dot(s1, a, b);
    s2 = dot(s2, a, b);
    s3 = dot(s3, a, b);
    s4 = dot(s4, a, b);
    s5 = dot(s5, a, b);
    s6 = dot(s6, a, b);
    s7 = dot(s7, a, b);
    s8 = dot(s8, a, b);
    s9 = dot(s9, a, b);
    s10 = dot(s10, a, b);
    s11 = dot(s11, a, b);
    asm volatile(""
                 : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7),
                   "+v"(s8), "+v"(s9), "+v"(s10), "+v"(s11));
  }
  const float total = _mm512_cvtss_f32(s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9 + s10 + s11);
  // Uses the sums in a way that never changes the result.
  return 2.0 * 32 * 12 * static_cast<double>(rounds) + (total != total ? 1.0 : 0.0);
}

}  // namespace piton::cpu::v4_bf16
