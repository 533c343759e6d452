// The choice of the experts of each token (kernels/experts.h, RouteTokens).
#pragma once

#include "kernels/experts.h"
#include "ops/tape.h"

namespace piton {

struct RoutingRules {
  std::int64_t choices = 1;  // k
  bool normalized = false;
  // Of the balance in the loss, times the share of this rank where several ranks add up their
  // gradients.
  double balance_factor = 0;
};

struct Routing {
  Value weights;   // [n, k], fp32 (fp64)
  Tensor choices;  // int32 [n, k]
};

// x [n, h], router [experts, h]. The product is in fp32 (fp64). Adds n L, the balance of the layer,
// to context.balance.sum, if there is one; the gradient of balance_factor n L, times
// context.balance.scale, is added in backward.
Routing routed(Context& context, const Value& x, Parameter& router, const RoutingRules& rules);

}  // namespace piton
