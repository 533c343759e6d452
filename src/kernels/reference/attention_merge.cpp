#include "kernels/attention_merge.h"

#include <cmath>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {

void execute(const AttentionMerge& call) {
  Values out = Values::read(call.out);
  Values lse = Values::read(call.lse);
  const Values part = Values::read(call.part);
  const Values part_lse = Values::read(call.part_lse);
  for (std::int64_t b = 0; b < call.part.dim(0); ++b) {
    for (std::int64_t query = 0; query < call.part.dim(1); ++query) {
      for (std::int64_t head = 0; head < call.part.dim(2); ++head) {
        double& whole = lse(b, head, query);
        const double own = part_lse(b, head, query);
        const double most = whole > own ? whole : own;  // a NaN stays one
        if (most == -kInfinity) continue;
        const double w = std::exp(whole - most);
        const double u = std::exp(own - most);
        for (std::int64_t i = 0; i < call.part.dim(3); ++i) {
          double& sum = out(b, query, head, i);
          sum = (w * sum + u * part(b, query, head, i)) / (w + u);
        }
        whole = most + std::log(w + u);
      }
    }
  }
  out.write(call.out);
  lse.write(call.lse);
}

}  // namespace piton::reference
