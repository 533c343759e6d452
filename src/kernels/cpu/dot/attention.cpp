// The steps of attention between its bf16 products. Scores arrive as fp32 tiles; weights and score
// gradients leave as bf16, in the layouts that the next products read.
#include <immintrin.h>

#include "kernels/cpu/dot/functions.h"
#include "kernels/cpu/dot/table.h"

#define PITON_INLINE static inline __attribute__((always_inline))

namespace piton::cpu::v4_bf16 {
namespace {

constexpr float kLog2E = 1.44269504F;

// 2^x to 7e-6, far below the rounding to bf16 that follows: 2^x = 2^n 2^f, n the nearest integer
// and |f| <= 1/2; (2^f - 1) / f by the polynomial that meets it at the four Chebyshev nodes.
PITON_INLINE __m512 exp2(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-200), x);  // -infinity to 0; NaN stays
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(0.009656710288544975F);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.05583828294621944F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24022530097412234F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.6931367338836215F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(p, n);
}

// Bits of the columns that row `r` sees.
template <int kVectors>
PITON_INLINE std::uint64_t visible_columns(const ScoreArguments& a, int r) {
  if (!a.masked) return ~std::uint64_t{0};
  const std::int64_t low = a.low[r] - a.first_key;
  const std::int64_t high = a.high[r] - a.first_key;
  if (high <= 0 || low >= kScoreColumns || low >= high) return 0;
  std::uint64_t bits = high >= kScoreColumns ? ~std::uint64_t{0} : (std::uint64_t{1} << high) - 1;
  if (low > 0) bits &= ~((std::uint64_t{1} << low) - 1);
  if (a.key_segments == nullptr) return bits;
  const __m512i own = _mm512_set1_epi32(a.query_segments[r]);
  std::uint64_t same = 0;
  for (int v = 0; v < kVectors; ++v) {
    const __m512i segments = _mm512_loadu_si512(a.key_segments + 16 * v);
    same |= std::uint64_t{_mm512_cmpeq_epi32_mask(own, segments)} << (16 * v);
  }
  return bits & same;
}

PITON_INLINE __m512 biased(const ScoreArguments& a, int r, int v) {
  const __m512 score = _mm512_mul_ps(_mm512_loadu_ps(a.scores + r * a.stride + 16 * v),
                                     _mm512_set1_ps(a.scale * kLog2E));
  if (a.slope == 0) return score;
  const auto distance = static_cast<float>(a.first_key + 16 * v - a.positions[r]);
  const __m512 lanes = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  return _mm512_fmadd_ps(_mm512_add_ps(lanes, _mm512_set1_ps(distance)),
                         _mm512_set1_ps(a.slope * kLog2E), score);
}

PITON_INLINE __mmask16 part(std::uint64_t bits, int v) {
  return static_cast<__mmask16>(bits >> (16 * v));
}

template <int kVectors>
void softmax_of(const ScoreArguments& a, const float* kept, float* maxima, float* sums, float* out,
                std::int64_t out_stride, std::int64_t d, std::uint16_t* weights) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  for (int r = 0; r < a.rows; ++r) {
    const std::uint64_t visible = visible_columns<kVectors>(a, r);
    std::uint16_t* to = weights + r * kScoreColumns;
    if (visible == 0) {
      for (int v = 0; v < kVectors; ++v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 16 * v), _mm256_setzero_si256());
      }
      continue;
    }
    __m512 score[kVectors];
    __m512 top = lowest;
    for (int v = 0; v < kVectors; ++v) {
      score[v] = _mm512_mask_mov_ps(lowest, part(visible, v), biased(a, r, v));
      top =
          _mm512_max_ps(score[v], top);  // of a NaN and a number, the number: the sum keeps the NaN
    }
    const float before = maxima[r];
    const float highest = _mm512_reduce_max_ps(top);
    const float now = highest > before ? highest : before;
    const __m512 base = _mm512_set1_ps(now == -__builtin_inff() ? 0.0F : now);
    __m512 total = _mm512_setzero_ps();
    for (int v = 0; v < kVectors; ++v) {
      __m512 p = exp2(_mm512_sub_ps(score[v], base));
      total = _mm512_add_ps(total, p);
      if (kept != nullptr) p = _mm512_mul_ps(p, _mm512_loadu_ps(kept + r * kScoreColumns + 16 * v));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 16 * v), (__m256i)_mm512_cvtneps_pbh(p));
    }
    float sum = _mm512_reduce_add_ps(total);
    if (now != before) {
      const float factor =
          before == -__builtin_inff() ? 0.0F : _mm512_cvtss_f32(exp2(_mm512_set1_ps(before - now)));
      sum += sums[r] * factor;
      maxima[r] = now;
      const __m512 scale = _mm512_set1_ps(factor);
      float* y = out + r * out_stride;
      for (std::int64_t c = 0; c < d; c += 16) {
        _mm512_storeu_ps(y + c, _mm512_mul_ps(_mm512_loadu_ps(y + c), scale));
      }
      sums[r] = sum;
    } else {
      sums[r] += sum;
    }
  }
}

template <int kVectors>
void score_gradients_of(const ScoreArguments& a, const float* kept, const float* lse,
                        const float* dp, const float* delta, Pair* weights, Pair* gradients,
                        std::uint16_t* gradient_rows) {
  // Words 0..15 of rows r and r + 1, one after the other, into pairs.
  alignas(64) static constexpr std::uint16_t kOrder[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(kOrder);
  const __m512 scale = _mm512_set1_ps(a.scale);
  for (int r = 0; r < a.rows; r += 2) {
    std::uint64_t visible[2] = {0, 0};
    __m512 base[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    __m512 mean[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    const int rows = a.rows - r < 2 ? 1 : 2;
    for (int i = 0; i < rows; ++i) {
      if (lse[r + i] == -__builtin_inff()) continue;  // saw nothing
      visible[i] = visible_columns<kVectors>(a, r + i);
      base[i] = _mm512_set1_ps(lse[r + i] * kLog2E);
      mean[i] = _mm512_set1_ps(delta[r + i]);
    }
    for (int v = 0; v < kVectors; ++v) {
      __m512 p[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      __m512 ds[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      for (int i = 0; i < rows; ++i) {
        const __mmask16 mask = part(visible[i], v);
        if (mask == 0) continue;
        __m512 g = _mm512_loadu_ps(dp + (r + i) * kScoreColumns + 16 * v);
        p[i] = _mm512_maskz_mov_ps(mask, exp2(_mm512_sub_ps(biased(a, r + i, v), base[i])));
        if (kept == nullptr) {
          ds[i] = _mm512_maskz_mul_ps(mask, _mm512_mul_ps(p[i], scale), _mm512_sub_ps(g, mean[i]));
        } else {
          const __m512 factor = _mm512_loadu_ps(kept + (r + i) * kScoreColumns + 16 * v);
          g = _mm512_fmsub_ps(g, factor, mean[i]);
          ds[i] = _mm512_maskz_mul_ps(mask, _mm512_mul_ps(p[i], scale), g);
          p[i] = _mm512_mul_ps(p[i], factor);
        }
      }
      const auto p_rows = (__m512i)_mm512_cvtne2ps_pbh(p[1], p[0]);
      const auto ds_rows = (__m512i)_mm512_cvtne2ps_pbh(ds[1], ds[0]);
      const std::int64_t at = r / 2 * kScoreColumns + 16 * v;
      _mm512_storeu_si512(weights + at, _mm512_permutexvar_epi16(order, p_rows));
      _mm512_storeu_si512(gradients + at, _mm512_permutexvar_epi16(order, ds_rows));
      std::uint16_t* row = gradient_rows + r * kScoreColumns + 16 * v;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), _mm512_castsi512_si256(ds_rows));
      if (rows == 2) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + kScoreColumns),
                            _mm512_extracti64x4_epi64(ds_rows, 1));
      }
    }
  }
}

}  // namespace

void softmax(const ScoreArguments& a, const float* kept, float* maxima, float* sums, float* out,
             std::int64_t out_stride, std::int64_t d, std::uint16_t* weights) {
  switch (a.columns / 16) {
    case 4:
      return softmax_of<4>(a, kept, maxima, sums, out, out_stride, d, weights);
    case 3:
      return softmax_of<3>(a, kept, maxima, sums, out, out_stride, d, weights);
    case 2:
      return softmax_of<2>(a, kept, maxima, sums, out, out_stride, d, weights);
    default:
      return softmax_of<1>(a, kept, maxima, sums, out, out_stride, d, weights);
  }
}

void score_gradients(const ScoreArguments& a, const float* kept, const float* lse, const float* dp,
                     const float* delta, Pair* weights, Pair* gradients,
                     std::uint16_t* gradient_rows) {
  switch (a.columns / 16) {
    case 4:
      return score_gradients_of<4>(a, kept, lse, dp, delta, weights, gradients, gradient_rows);
    case 3:
      return score_gradients_of<3>(a, kept, lse, dp, delta, weights, gradients, gradient_rows);
    case 2:
      return score_gradients_of<2>(a, kept, lse, dp, delta, weights, gradients, gradient_rows);
    default:
      return score_gradients_of<1>(a, kept, lse, dp, delta, weights, gradients, gradient_rows);
  }
}

}  // namespace piton::cpu::v4_bf16
