// A sink of attention: each head has one more logit, s, in the softmax of every query, whose value
// is 0 (Xiao et al. 2023, arXiv:2309.17453; learned in gpt-oss). It takes a share of the softmax
// from the keys, after attention to them has been computed:
//
//   lse' = log(exp(lse) + exp(s))
//   out' = exp(lse - lse') out
//
// Backward of attention recomputes P from lse', so that its dq, dk and dv are right as they are
// (kernels/attention.h), and ds = - sum over the queries of exp(s - lse') (dout . out').
//
// Dropout is a factor within `out` and changes nothing here. A query that sees no key has
// lse = -infinity and out 0: its lse' is s.
#pragma once

#include "kernels/call.h"

namespace piton {

struct AttentionSink {
  static constexpr std::string_view kName = "attention sink";
  Tensor out;    // [b, sq, a, d]  updated; last dim contiguous
  Tensor lse;    // [b, a, sq]     updated; fp32 (fp64), contiguous
  Tensor sinks;  // [a], or empty: all are 0; of the type of `out`, or 16 bits with `out` in fp32

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("out", self.out, Access::kUpdate);
    v("lse", self.lse, Access::kUpdate);
    v("sinks", self.sinks, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// The order of the sums depends only on sizes.
struct AttentionSinkBackward {
  static constexpr std::string_view kName = "attention sink backward";
  Tensor dsinks;  // [a]  fp32 (fp64)  ADDED TO
  Tensor dout;    // [b, sq, a, d]  dout and out: last dim contiguous
  Tensor out;     // [b, sq, a, d]  with the sinks
  Tensor lse;     // [b, a, sq]     with the sinks; fp32 (fp64), contiguous
  Tensor sinks;   // [a]  of the type of `out`

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dsinks", self.dsinks, Access::kUpdate);
    v("dout", self.dout, Access::kRead);
    v("out", self.out, Access::kRead);
    v("lse", self.lse, Access::kRead);
    v("sinks", self.sinks, Access::kRead);
  }
  void check() const;
  double flops() const;
};

}  // namespace piton
