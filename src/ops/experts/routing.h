// The choice of the experts of each token (kernels/experts.h, RouteTokens).
#pragma once

#include "kernels/experts.h"
#include "ops/tape.h"

namespace piton {

struct RoutingRules {
  std::int64_t choices = 1;  // k
  bool normalized = false;
  ScoreKind score = ScoreKind::kSoftmax;
  double factor = 1;  // of the weights
  ExpertGroups groups;
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
// context.balance.scale, is added in backward. The choices that the balance counts are those of the
// scores alone, without bias and groups, as in Megatron-core.
//
// bias [experts], or null: backward adds ExcessChoices to its gradient. Counting is part of
// backward because each micro-batch of a step goes back exactly once, whatever is computed again,
// and because the sums of gradients over micro-batches and ranks then are those of the counts.
Routing routed(Context& context, const Value& x, Parameter& router, Parameter* bias,
               const RoutingRules& rules);

}  // namespace piton
