// The gated delta rule over a chunk of rows at once, as products of small matrices (Yang et al.
// 2024, arXiv:2412.06464, section 3.3), for its backward. With S the state before the chunk, and of
// its c rows K, Q [c, dk], V [c, dv], strengths s [c], and keep:
//
//   L[t, i] = keep_(i+1) ... keep_t for i <= t, else 0         g[t] = keep_1 ... keep_t
//   N       = s * L * K K^T below the diagonal                 E = V - g K S
//   D       = (I + N)^-1 (s E)
//   out     = g Q S + (L * Q K^T) D                            S after = g[c] S + K^T (L[c, :] D)
//
// "s *" and "g" multiply rows. No L is a quotient, so keeps that are 0 or nearly so do no harm.
//
// A state space has no N, E = V and D = s V (Dao & Gu 2024, arXiv:2405.21060, section 6), for its
// forward too. Q K^T is the same for all value heads of a key head, and so are the products with
// its gradient: they are computed once for several heads.
#pragma once

#include <cstdint>

#include "kernels/cpu/context.h"

namespace piton::cpu {

inline constexpr std::int64_t kDeltaChunk = 64;  // c, at most

// One chunk of a value head; rows of queries and keys have `keys` numbers, of values `columns`.
struct DeltaChunk {
  std::int64_t rows = 0;     // c
  const float* q = nullptr;  // as kernels/recurrent/delta_rule.h multiplies them
  const float* k = nullptr;
  const float* keep = nullptr;      // [c]
  const float* strength = nullptr;  // s
  float* e = nullptr;               // E; before DeltaChunks::forward() V, of a state space too
  float* d = nullptr;               // D
  const float* state = nullptr;     // S [keys, columns]; null: the chunk begins a segment
  // Of a state space:
  float skip = 0;
  float* scores = nullptr;   // Q K^T, by DeltaChunks::multiply_scores()
  float* dscores = nullptr;  // its gradient over the heads before and this one, added to
  float* out = nullptr;      // written by DeltaChunks::forward() if it is given
  // Of backward:
  const float* dout = nullptr;
  float* dq = nullptr;         // added to, of q as it is here
  float* dk = nullptr;         // added to
  float* dv = nullptr;         // written
  bool continues = false;      // S after is read, by the next chunk
  float* dstate = nullptr;     // [keys, columns]: of S after if it is read, replaced by that of S
  float* dlog_keep = nullptr;  // [c] written, of log keep
  float* dstrength = nullptr;  // [c] written, of s
};

// Chunks of one head after another.
class DeltaChunks {
 public:
  // Sizes are multiples of the vector.
  DeltaChunks(CpuContext& context, bool corrects, std::int64_t keys, std::int64_t columns)
      : vector_(context.vector), corrects_(corrects), keys_(keys), columns_(columns) {}
  // Of the memory that place() gets, a multiple of 16.
  std::int64_t floats() const;
  // Returns floats(). Null: only counts.
  std::int64_t place(float* memory);

  // Of a state space, before the first head of some with the same keys.
  void multiply_scores(const DeltaChunk& chunk);
  // Writes E and D, and S after to `next`, if that is given. It may be S.
  void forward(const DeltaChunk& chunk, float* next);
  // Of a chunk whose forward() was computed.
  void backward(const DeltaChunk& chunk);
  // Of a state space, after the last head: the gradients of queries and keys by dscores.
  void add_scores(const DeltaChunk& chunk) const;

 private:
  // L and g.
  void read_keeps(const DeltaChunk& chunk);
  // K^T, K K^T, and -N.
  void multiply_keys(const DeltaChunk& chunk);
  void turn_keys(const DeltaChunk& chunk);
  void write_output(const DeltaChunk& chunk) const;
  // The gradient of D by out and S after, then that of s E; and of the last keeps.
  void read_output(const DeltaChunk& chunk);
  // The gradients of Q K^T, K K^T, s and V.
  void read_scores(const DeltaChunk& chunk);
  void read_links(const DeltaChunk& chunk, std::int64_t t);
  void add_to_rows(const DeltaChunk& chunk);
  void step_back(const DeltaChunk& chunk);

  // Replaces d by (I + N)^-1 d, and by (I + N)^-T d.
  void solve(float* d, std::int64_t rows) const;
  void solve_transposed(float* d, std::int64_t rows) const;
  // y [m, n] (+)= x [m, k] w [k, n].
  void multiply(float* y, const float* x, std::int64_t m, std::int64_t k, const float* w,
                std::int64_t n, bool adds) const;
  // Scores y [rows, c] = x [rows, depth] turned [depth, c].
  void multiply_by_turned(float* y, const float* x, const float* turned, std::int64_t depth,
                          std::int64_t rows) const;
  // y [m, n] (+)= x^T w, for x [k, m] in rows of `stride` and w [k, n].
  void multiply_turned(float* y, const float* x, std::int64_t stride, std::int64_t m,
                       std::int64_t k, const float* w, std::int64_t n, bool adds) const;
  // y [count, keys] += scores rows.
  void add_product(float* y, const float* scores, const float* rows, std::int64_t count) const;
  // y [n, m] = the transpose of x [m, n].
  void turn(float* y, std::int64_t stride, const float* x, std::int64_t m, std::int64_t n) const;
  // Rows of values.
  void scale_rows(float* y, const float* x, const float* factors, std::int64_t rows,
                  float sign) const;
  float dot(const float* a, const float* b, std::int64_t n) const;

  // L * Q K^T.
  void weigh(float* y, const float* scores, std::int64_t rows) const;

  const VectorTable& vector_;
  bool corrects_;
  std::int64_t keys_;
  std::int64_t columns_;
  std::int64_t wide_ = 0;  // c, padded to the vector
  // Between rows of a chunk [c, kDeltaChunk].
  float* keeps_ = nullptr;           // L
  float* key_scores_ = nullptr;      // K K^T; then its gradient, symmetric
  float* links_ = nullptr;           // -N
  float* scores_ = nullptr;          // Q K^T
  float* dscores_ = nullptr;         // L * Q K^T; then the gradient of Q K^T
  float* dlinks_ = nullptr;          // of -N
  float* near_ = nullptr;            // g [c]
  float* keys_turned_ = nullptr;     // K^T [keys, kDeltaChunk]
  float* turned_ = nullptr;          // D^T [columns, kDeltaChunk]
  float* updates_ = nullptr;         // [c, columns]: rows that change a state
  float* dd_ = nullptr;              // [c, columns]: of D; then of s E
  float* rows_ = nullptr;            // [c, keys], [c, columns]
  float* state_turned_ = nullptr;    // S^T, and that of the gradient of S after [columns, keys]
  double of_last_ = 0;               // of log g[c]
  double of_log_[kDeltaChunk] = {};  // of log g[t] and of L, t its row (+) or column (-)
};

}  // namespace piton::cpu
