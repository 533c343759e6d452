// Packs a weight held as codes into the right side of bf16 products, for many rows of x.
#include "kernels/cpu/dot/functions.h"
#include "kernels/cpu/dot/words.h"

namespace piton::cpu::v4_bf16 {
namespace {

constexpr std::int64_t kColumns = 32;        // of a vector of bf16; in one group, or two of 16
constexpr std::int64_t kAheadColumns = 256;  // of the codes that are prefetched

// Of group `at`, counted over all rows.
PITON_INLINE float scale_at(const CodedRows& w, const CodeScales& scales, std::int64_t at) {
  if (scales.blocks != nullptr) {  // whole blocks in a row
    const float byte = static_cast<const signed char*>(scales.values)[at];
    return byte * scales.blocks[at * w.group / kScaleBlockColumns];
  }
  if (scales.half) return _cvtsh_ss(static_cast<const std::uint16_t*>(scales.values)[at]);
  return static_cast<const float*>(scales.values)[at];
}

PITON_INLINE __m128i load_16(const std::uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// How the codes of a group become values.
struct Group {
  Group(const CodedRows& w, std::int64_t at)
      : scale(_mm512_set1_ps(scale_at(w, scales_of(w), at))),
        zero(_mm512_set1_ps(w.zeros == nullptr ? 0.0F : w.zeros[at])),
        minimum(_mm512_set1_ps(w.minima == nullptr ? 0.0F : scale_at(w, minima_of(w), at))) {}
  __m512 values(__m512 codes) const {
    return _mm512_sub_ps(_mm512_mul_ps(_mm512_sub_ps(codes, zero), scale), minimum);
  }
  __m512 scale, zero, minimum;
};

PITON_INLINE __m512 sixteen_bytes(const std::uint8_t* codes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(codes)));
}

// 32 columns of a row from `column` on, as CodesTable::expand has them, rounded to bf16.
PITON_INLINE __m512i values(const CodedRows& w, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * w.groups + (w.groups == 1 ? 0 : column / w.group);
  const std::uint8_t* codes = w.codes + row * w.stride + (w.nibbles ? column / 2 : column);
  const Group group(w, at);
  if (w.nibbles) {
    __builtin_prefetch(codes + kAheadColumns / 2);
    const __m512 table = group.values(_mm512_loadu_ps(w.values));
    const __m512i twice = _mm512_broadcast_i64x4((__m256i)_mm512_cvtneps_pbh(table));
    // The low four bits of each half of a word are a code; other bits are not looked at.
    const __m512i bytes = _mm512_cvtepu8_epi32(load_16(codes));
    const __m512i places = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
    return _mm512_permutexvar_epi16(places, twice);
  }
  __builtin_prefetch(codes + kAheadColumns);
  const __m512 first = group.values(sixteen_bytes(codes));
  const __m512 codes_after = sixteen_bytes(codes + 16);
  const __m512 second =
      w.group == 16 ? Group(w, at + 1).values(codes_after) : group.values(codes_after);
  return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

}  // namespace

void pack_codes(Pair* panels, const CodedRows& w, std::int64_t begin, std::int64_t n) {
  const std::int64_t pairs = w.columns / 2;
  for (std::int64_t panel = 0; panel < n; panel += kPanel) {
    const std::int64_t width = ((n - panel < kPanel ? n - panel : kPanel) + 15) / 16 * 16;
    for (std::int64_t first = 0; first < width; first += 16) {
      const std::int64_t rows = n - panel - first < 16 ? n - panel - first : 16;
      for (std::int64_t column = 0; column < w.columns; column += kColumns) {
        __m512i r[16];
        for (int i = 0; i < 16; ++i) {
          r[i] = i < rows ? values(w, begin + panel + first + i, column) : _mm512_setzero_si512();
        }
        transpose(r);
        for (int i = 0; i < 16; ++i)
          _mm512_storeu_si512(panels + (column / 2 + i) * width + first, r[i]);
      }
    }
    panels += pairs * width;
  }
}

}  // namespace piton::cpu::v4_bf16
