// The steps of attention between its bf16 products. Scores are read as fp32 tiles; weights and
// score gradients are written as bf16, in the layouts that the next products read.
#include <immintrin.h>

#include "kernels/cpu/dot/functions.h"
#include "kernels/cpu/dot/table.h"

#define PITON_INLINE static inline __attribute__((always_inline))

namespace piton::cpu::v4_bf16 {
namespace {

constexpr float kLog2E = 1.44269504F;

// 2^x with a relative error of 3e-6, far below the rounding to bf16 that follows: 2^n 2^f with n =
// floor(x); 2^f by the polynomial of the smallest relative error on [0, 1]. -infinity gives 0, NaN
// stays.
PITON_INLINE __m512 exp2(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(0.013534168F);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.05201146F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24144275F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69300383F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0000026F));
  return _mm512_scalef_ps(p, x);  // times 2^floor(x)
}

// Bit mask of the columns that row `r` sees.
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

// Scores of 16 columns of a row as powers of two, minus `base`.
PITON_INLINE __m512 above(const ScoreArguments& a, int r, int v, __m512 base) {
  if (a.slope != 0) {
    const auto distance = static_cast<float>(a.first_key + 16 * v - a.positions[r]);
    const __m512 lanes = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    base = _mm512_fnmadd_ps(_mm512_add_ps(lanes, _mm512_set1_ps(distance)),
                            _mm512_set1_ps(a.slope * kLog2E), base);
  }
  return _mm512_fmsub_ps(_mm512_loadu_ps(a.scores + r * a.stride + 16 * v),
                         _mm512_set1_ps(a.scale * kLog2E), base);
}

PITON_INLINE __mmask16 part(std::uint64_t bits, int v) {
  return static_cast<__mmask16>(bits >> (16 * v));
}

// A row's base is raised only if a score is this far above it. So rows of `out` are rarely
// rescaled, and a maximum across lanes is rarely needed.
constexpr float kHeadroom = 8;

template <int kVectors>
class Softmax {
 public:
  Softmax(const ScoreArguments& a, float* bases, float* sums, float* out, std::int64_t out_stride,
          std::int64_t d)
      : a_(a), bases_(bases), sums_(sums), out_(out), out_stride_(out_stride), d_(d) {}

  void run(const float* kept, std::uint16_t* weights) const {
    for (int r = 0; r < a_.rows; ++r) {
      const std::uint64_t visible = visible_columns<kVectors>(a_, r);
      std::uint16_t* to = weights + r * kScoreColumns;
      if (visible == 0) {
        for (int v = 0; v < kVectors; ++v) store(to, v, _mm512_setzero_ps());
        continue;
      }
      __m512 x[kVectors];
      scores(x, r, visible, _mm512_set1_ps(bases_[r]));
      const float before = bases_[r];
      const __mmask16 far = _mm512_cmp_ps_mask(highest(x), _mm512_set1_ps(kHeadroom), _CMP_GT_OQ);
      if (before == -__builtin_inff() || far != 0) [[unlikely]]
        raise(x, r, visible);
      __m512 total = _mm512_load_ps(sums_ + r * kSoftmaxLanes);
      for (int v = 0; v < kVectors; ++v) {
        x[v] = exp2(x[v]);
        total = _mm512_add_ps(total, x[v]);
      }
      _mm512_store_ps(sums_ + r * kSoftmaxLanes, total);
      for (int v = 0; v < kVectors; ++v) {
        if (kept != nullptr) {
          x[v] = _mm512_mul_ps(x[v], _mm512_loadu_ps(kept + r * kScoreColumns + 16 * v));
        }
        store(to, v, x[v]);
      }
    }
  }

 private:
  PITON_INLINE void store(std::uint16_t* to, int v, __m512 p) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 16 * v), (__m256i)_mm512_cvtneps_pbh(p));
  }

  inline __attribute__((always_inline)) void scores(__m512 (&x)[kVectors], int r,
                                                    std::uint64_t visible, __m512 base) const {
    for (int v = 0; v < kVectors; ++v) x[v] = above(a_, r, v, base);
    if (!a_.masked) return;
    const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
    for (int v = 0; v < kVectors; ++v) x[v] = _mm512_mask_mov_ps(lowest, part(visible, v), x[v]);
  }

  // Of a NaN and a number, takes the number; the sum keeps the NaN.
  PITON_INLINE __m512 highest(const __m512 (&x)[kVectors]) {
    __m512 top = _mm512_set1_ps(-__builtin_inff());
    for (int v = 0; v < kVectors; ++v) top = _mm512_max_ps(x[v], top);
    return top;
  }

  // Raises the base of row r to the highest score so far, and computes x relative to it.
  __attribute__((noinline)) void raise(__m512 (&x)[kVectors], int r, std::uint64_t visible) const {
    scores(x, r, visible, _mm512_setzero_ps());
    const float before = bases_[r];
    const float top = _mm512_reduce_max_ps(highest(x));
    const float now = top > before ? top : before;
    if (before != -__builtin_inff()) {
      const __m512 factor = exp2(_mm512_set1_ps(before - now));
      float* sums = sums_ + r * kSoftmaxLanes;
      _mm512_store_ps(sums, _mm512_mul_ps(_mm512_load_ps(sums), factor));
      float* y = out_ + r * out_stride_;
      for (std::int64_t c = 0; c < d_; c += 16) {
        _mm512_storeu_ps(y + c, _mm512_mul_ps(_mm512_loadu_ps(y + c), factor));
      }
    }
    bases_[r] = now;
    if (now != -__builtin_inff()) scores(x, r, visible, _mm512_set1_ps(now));
  }

  const ScoreArguments& a_;
  float* bases_;
  float* sums_;
  float* out_;
  std::int64_t out_stride_;
  std::int64_t d_;
};

template <int kVectors>
void score_gradients_of(const ScoreArguments& a, const float* kept, const float* lse,
                        const float* dp, const float* delta, Pair* weights, Pair* gradients,
                        std::uint16_t* gradient_rows) {
  // Interleaves words 0..15 of rows r and r + 1, which are stored in sequence, into pairs.
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
      if (lse[r + i] == -__builtin_inff()) continue;  // sees no key
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
        p[i] = _mm512_maskz_mov_ps(mask, exp2(above(a, r + i, v, base[i])));
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

void softmax(const ScoreArguments& a, const float* kept, float* bases, float* sums, float* out,
             std::int64_t out_stride, std::int64_t d, std::uint16_t* weights) {
  const auto run = [&](auto softmax) { softmax.run(kept, weights); };
  switch (a.columns / 16) {
    case 4:
      return run(Softmax<4>(a, bases, sums, out, out_stride, d));
    case 3:
      return run(Softmax<3>(a, bases, sums, out, out_stride, d));
    case 2:
      return run(Softmax<2>(a, bases, sums, out, out_stride, d));
    default:
      return run(Softmax<1>(a, bases, sums, out, out_stride, d));
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
