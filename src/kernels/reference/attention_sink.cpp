#include "kernels/attention_sink.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {

void execute(const AttentionSink& call) {
  Values out = Values::read(call.out);
  Values lse = Values::read(call.lse);
  const Values sinks = Values::read(call.sinks);
  for (std::int64_t b = 0; b < call.out.dim(0); ++b) {
    for (std::int64_t query = 0; query < call.out.dim(1); ++query) {
      for (std::int64_t head = 0; head < call.out.dim(2); ++head) {
        const double sink = sinks.given() ? sinks(head) : 0;
        double& own = lse(b, head, query);
        const double most = std::max(own, sink);  // a NaN of lse stays one
        const double whole = most + std::log(std::exp(own - most) + std::exp(sink - most));
        const double share = std::exp(own - whole);
        for (std::int64_t i = 0; i < call.out.dim(3); ++i) out(b, query, head, i) *= share;
        own = whole;
      }
    }
  }
  out.write(call.out);
  lse.write(call.lse);
}

void execute(const AttentionSinkBackward& call) {
  Values dsinks = Values::read(call.dsinks);
  const Values dout = Values::read(call.dout);
  const Values out = Values::read(call.out);
  const Values lse = Values::read(call.lse);
  const Values sinks = Values::read(call.sinks);
  for (std::int64_t head = 0; head < call.out.dim(2); ++head) {
    double sum = 0;
    for (std::int64_t b = 0; b < call.out.dim(0); ++b) {
      for (std::int64_t query = 0; query < call.out.dim(1); ++query) {
        double product = 0;
        for (std::int64_t i = 0; i < call.out.dim(3); ++i)
          product += dout(b, query, head, i) * out(b, query, head, i);
        sum += std::exp(sinks(head) - lse(b, head, query)) * product;
      }
    }
    dsinks(head) -= sum;
  }
  dsinks.write(call.dsinks);
}

}  // namespace piton::reference
