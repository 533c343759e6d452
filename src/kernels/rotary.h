// Rotary position embedding (Su et al. 2021, arXiv:2104.09864), in place. Rotates pairs of
// channels:
//
//   halves (Hugging Face)   pair (i, i + d/2):  x_i' = x_i c - x_j s,  x_j' = x_j c + x_i s
//   pairs  (GPT-J)          pair (2i, 2i + 1), the same
// with c, s = cosine, sine[position][i]. Backward rotates by the opposite angle (`inverse`).
#pragma once

#include "kernels/call.h"

namespace piton {

struct Rotary {
  static constexpr std::string_view kName = "rotary";
  enum class Convention : std::uint8_t { kHalves, kPairs };

  Tensor x;  // [n, heads, d]  changed in place; rows and heads may be strided: d may be a part of
             // each head
  Tensor positions;  // int32 [n]
  Tensor cosine;     // [positions, d/2]  fp32 (fp64 for fp64)
  Tensor sine;       // [positions, d/2]
  Convention convention = Convention::kHalves;
  bool inverse = false;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("x", self.x, Access::kUpdate);
    v("positions", self.positions, Access::kRead);
    v("cosine", self.cosine, Access::kRead);
    v("sine", self.sine, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
