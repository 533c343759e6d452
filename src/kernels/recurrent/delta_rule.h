// The gated delta rule (Yang et al. 2024, arXiv:2412.06464, section 3): attention whose keys and
// values are in a matrix S [dk, dv] of each value head, which is 0 before the first row of a sample
// and of a segment. With k and q of length 1, q times 1 / sqrt(dk), as Qwen3-Next has them:
//
//   keep_t = exp(-exp(rate) log(1 + exp(decay_t + bias)))     strength s_t = sigmoid(strength_t)
//   S_t = keep_t S_(t-1) + k_t d_t^T,   d_t = s_t (v_t - keep_t S_(t-1)^T k_t)
//   out_t = S_t^T q_t
//
// Lengths have 1e-6 added under the square root. Key head i is that of value heads i r to i r + r -
// 1, r = hv / hk. States and sums are fp32 (fp64).
//
// The rule of a state space (Mamba-2: Dao & Gu 2024, arXiv:2405.21060, section 3) has no lengths
// and corrects nothing. The size of a step is that of its decay and the strength of what it adds:
//
//   step_t = log(1 + exp(decay_t + bias))                     keep_t = exp(-exp(rate) step_t)
//   S_t = keep_t S_(t-1) + k_t d_t^T,   d_t = step_t v_t
//   out_t = S_t^T q_t + skip v_t
#pragma once

#include "kernels/recurrent/text_rows.h"

namespace piton {

inline constexpr double kDeltaNormEps = 1e-6;

enum class StateRule : std::uint8_t { kDelta, kStateSpace };

// What both calls read. Rows may be strided, and heads contiguous or strided.
struct DeltaRuleInput {
  Tensor q;                  // [n, hk, dk]
  Tensor k;                  // [n, hk, dk]
  Tensor v;                  // [n, hv, dv]
  Tensor decay;              // [n, hv]
  Tensor strength;           // [n, hv]; of a state space empty
  Tensor rate;               // [hv]
  Tensor bias;               // [hv]
  Tensor skip;               // [hv], of a state space; else empty
  Tensor segments;           // int32 [n]: documents of a sample; or empty: one
  std::int64_t samples = 1;  // of n / samples rows; ignored with texts
  StateRule rule = StateRule::kDelta;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("q", self.q, Access::kRead);
    v("k", self.k, Access::kRead);
    v("v", self.v, Access::kRead);
    v("decay", self.decay, Access::kRead);
    v("strength", self.strength, Access::kRead);
    v("rate", self.rate, Access::kRead);
    v("bias", self.bias, Access::kRead);
    v("skip", self.skip, Access::kRead);
    v("segments", self.segments, Access::kRead);
  }
  void check(std::string_view call, const TextRows& texts) const;
  // Of one pass over the states: a product with k, and an update.
  double pass_flops() const { return 4.0 * static_cast<double>(v.elements() * q.dim(2)); }
};

struct DeltaRuleForward {
  static constexpr std::string_view kName = "delta rule forward";
  Tensor out;  // [n, hv, dv]  written, contiguous
  DeltaRuleInput in;
  TextRows texts;
  Tensor state;  // fp32 (fp64) [slots, hv, dk, dv], changed; given with texts

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("out", self.out, Access::kWrite);
    DeltaRuleInput::tensors(self.in, v);
    TextRows::tensors(self.texts, v);
    v("state", self.state, Access::kUpdate);
  }
  void check() const;
  double flops() const { return 1.5 * in.pass_flops(); }
};

struct DeltaRuleBackward {
  static constexpr std::string_view kName = "delta rule backward";
  Tensor dq;         // [n, hk, dk]  written, as all gradients of rows: their rows may be strided
  Tensor dk;         // [n, hk, dk]
  Tensor dv;         // [n, hv, dv]
  Tensor ddecay;     // [n, hv]
  Tensor dstrength;  // [n, hv]; of a state space empty
  Tensor drate;      // fp32 (fp64) [hv], added to; or empty
  Tensor dbias;      // fp32 (fp64) [hv], added to; or empty
  Tensor dskip;      // fp32 (fp64) [hv], added to, of a state space; or empty
  Tensor dout;       // [n, hv, dv]  contiguous
  DeltaRuleInput in;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dq", self.dq, Access::kWrite);
    v("dk", self.dk, Access::kWrite);
    v("dv", self.dv, Access::kWrite);
    v("ddecay", self.ddecay, Access::kWrite);
    v("dstrength", self.dstrength, Access::kWrite);
    v("drate", self.drate, Access::kUpdate);
    v("dbias", self.dbias, Access::kUpdate);
    v("dskip", self.dskip, Access::kUpdate);
    v("dout", self.dout, Access::kRead);
    DeltaRuleInput::tensors(self.in, v);
  }
  void check() const;
  // The states again, and a pass for each of the gradients of S, q, k and v.
  double flops() const { return 4.0 * in.pass_flops(); }
};

}  // namespace piton
