// Micro-kernels on the bf16 dot product (vdpbf16ps): two products of neighbors in k at once,
// summed in fp32. The instruction treats subnormal inputs as 0 and rounds each step to nearest
// even.
//
// Operands come as PAIRS: a 32-bit word holds two bf16 that are neighbors in k. An odd k is padded
// with zeros by the packing code.
//   left    pair (i, p) at a + i * a_row + p * a_pair, in bf16: plain rows (a_pair 2), or
//           interleaved rows (a_row 2)
//   right   panels of 64 columns: word (p, j) of panel s at b[s * b_panel + p * width + j % 64],
//           where width is 64, or for the last panel the rest of n, padded to 16
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/codes.h"
#include "kernels/cpu/vector/table.h"

namespace piton::cpu {

using Pair = std::uint32_t;

inline constexpr int kPanel = 64;
inline constexpr int kScoreColumns = 64;
inline constexpr int kSoftmaxLanes = 16;

// Words of a packed right side.
inline std::int64_t panel_words(std::int64_t n, std::int64_t k) {
  return (k + 1) / 2 * ((n + 15) / 16 * 16);
}

// True if each run of 32 columns is in one group.
inline bool packs_codes(const CodedRows& w) {
  return w.columns % 32 == 0 &&
         (w.group % 32 == 0 || w.groups == 1 || (w.group == 16 && !w.nibbles));
}

// Destination of sums: (sum + addend + bias) as fp32 or bf16. The addend may be c itself.
struct DotOutput {
  void* data = nullptr;
  Type type = Type::kF32;
  std::int64_t stride = 0;
  const float* addend = nullptr;  // [m, n], or none
  std::int64_t addend_stride = 0;
  const float* bias = nullptr;  // [n], or none
};

struct DotTable {
  // c[m, n] = a b over `pairs` pairs, from pair `first` of b on; `b` and b_panel are those of whole
  // panels. Columns of c from n on are not written.
  void (*product)(std::int64_t m, std::int64_t n, std::int64_t pairs, const std::uint16_t* a,
                  std::int64_t a_row, std::int64_t a_pair, const Pair* b, std::int64_t b_panel,
                  std::int64_t first, const DotOutput& c);
  // product() for the first n (16, 32, 48 or 64) columns of one panel whose rows are b_step words
  // apart.
  void (*product_columns)(std::int64_t m, std::int64_t n, std::int64_t pairs,
                          const std::uint16_t* a, std::int64_t a_row, std::int64_t a_pair,
                          const Pair* b, std::int64_t b_step, const DotOutput& c);
  // product() for one whole panel read from memory, by up to 24 rows (a_pair 2); the same bits.
  // Rows form equal groups. While a group is multiplied, its share of as many words from `next` on
  // is prefetched; null: no prefetch.
  void (*product_streamed)(std::int64_t m, std::int64_t pairs, const std::uint16_t* a,
                           std::int64_t a_row, const Pair* b, const Pair* next, const DotOutput& c);
  // product() for a left side packed by pack_left from `a_pairs` pairs; `a` points at its first
  // pair.
  void (*product_packed)(std::int64_t m, std::int64_t n, std::int64_t pairs, const Pair* a,
                         std::int64_t a_pairs, const Pair* b, std::int64_t b_panel,
                         std::int64_t first, const DotOutput& c);

  // Right panels of b[k, n] from rows of bf16 or fp32 [k, n].
  void (*pack_rows)(Pair* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
  // Right panels of b[k, n] from its transpose, bf16 [n, k].
  void (*pack_columns)(Pair* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
  // Right panels of b[k, n] from rows [begin, begin + n) of its transpose, held as codes: the
  // values of CodesTable::expand, rounded to bf16. For packs_codes() only.
  void (*pack_codes)(Pair* panels, const CodedRows& w, std::int64_t begin, std::int64_t n);
  // Left panels of a[m, k] from its transpose [k, m], bf16 or fp32: panels of 6 rows, word (i, p)
  // at panel * pairs * 6 + p * 6 + i. `m` is padded to 6 with zeros.
  void (*pack_left)(Pair* panels, const Matrix& columns, std::int64_t k, std::int64_t m);

  // Attention. Scores are fp32 tiles [rows, kScoreColumns], of which `columns` (a multiple of 16)
  // count; weights and gradients of other columns are not written. `kept`: dropout factors of the
  // same shape, or null. Weights and gradients are written as bf16.
  //
  // Running softmax in powers of two: weights[rows, kScoreColumns] = 2^(t - base) with t = log2(e)
  // (scale * score + bias), 0 where invisible. The base of a row begins at -infinity; it is the
  // maximum of some of the row's t, and no t is more than 8 above it. Adds to the row's sums
  // (before dropout), in lanes [rows, kSoftmaxLanes] aligned to 64 bytes. Where the base is raised,
  // rescales the sums and the row of `out` [rows, d padded to 16].
  void (*softmax)(const ScoreArguments& a, const float* kept, float* bases, float* sums, float* out,
                  std::int64_t out_stride, std::int64_t d, std::uint16_t* weights);
  // P = exp(scale * score + bias - lse) kept, dS = P (dp kept - delta) scale; 0 where invisible.
  // Written as pairs of rows (2 i, 2 i + 1) [rows / 2, kScoreColumns], and dS as rows too.
  void (*score_gradients)(const ScoreArguments& a, const float* kept, const float* lse,
                          const float* dp, const float* delta, Pair* weights, Pair* gradients,
                          std::uint16_t* gradient_rows);

  // Multiply-adds on registers only; returns the number of floating-point operations.
  double (*loop)(std::int64_t rounds);
};

inline constexpr int kLeftPanel = 6;

namespace v4_bf16 {
const DotTable& dot_table();
}

}  // namespace piton::cpu
