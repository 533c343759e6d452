// Attention to keys that are held in parts: the results for two parts become that for both.
//
//   w = exp(lse - m), u = exp(part_lse - m), m the larger of lse and part_lse
//   out = (w out + u part) / (w + u)
//   lse = m + log(w + u)
//
// A query that sees no key of a part has part_lse = -infinity there, and nothing changes. Dropout
// is a factor within `out` and `part`, so it does not change the rule. Source: Liu et al. 2023
// (arXiv:2310.01889), section 3.
#pragma once

#include "kernels/call.h"

namespace piton {

struct AttentionMerge {
  static constexpr std::string_view kName = "attention merge";
  Tensor out;       // [b, sq, a, d]  fp32 (fp64), contiguous
  Tensor lse;       // [b, a, sq]     fp32 (fp64), contiguous
  Tensor part;      // [b, sq, a, d]  contiguous
  Tensor part_lse;  // [b, a, sq]     fp32 (fp64), contiguous

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("out", self.out, Access::kUpdate);
    v("lse", self.lse, Access::kUpdate);
    v("part", self.part, Access::kRead);
    v("part_lse", self.part_lse, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
