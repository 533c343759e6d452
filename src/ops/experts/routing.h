// The choice of the experts of each token (kernels/experts.h, RouteTokens).
#pragma once

#include "comm/communicator.h"
#include "kernels/experts.h"
#include "ops/tape.h"

namespace piton {

struct RoutingRules {
  std::int64_t choices = 1;  // k
  bool normalized = false;
  ScoreKind score = ScoreKind::kSoftmax;
  double factor = 1;  // of the weights
  ExpertGroups groups;
  // Of the balance and of the z-loss in the loss, times the share of this rank where several ranks
  // add up their gradients.
  double balance_factor = 0;
  double z_factor = 0;
  // The balance is of the rows of each sample, not of all rows of the micro-batch together.
  bool balances_samples = false;
  // The capacity of an expert over its mean number of tokens; 0: it takes all. With keeps_first it
  // keeps the first tokens of the samples, else those with the largest weights.
  double capacity_factor = 0;
  bool keeps_first = false;
  bool random = false;  // where context.limits_experts, the logits are random numbers

  // The most tokens that an expert takes of a micro-batch of n rows; n if it takes all.
  std::int64_t capacity(std::int64_t n, std::int64_t experts) const;
};

struct Router {
  Parameter* weight = nullptr;      // [experts, h]
  Parameter* bias = nullptr;        // [experts] of the choice alone, or null
  Parameter* logit_bias = nullptr;  // [experts] of the product, or null
  RoutingRules rules;
  Communicator* context = nullptr;  // ranks with the other rows of the same samples; null: none
  PhiloxKey random_key = {};        // site_key(seed, site) of RoutingRules::random
};

struct Routing {
  Value weights;   // [n, k], fp32 (fp64)
  Tensor choices;  // int32 [n, k]; -1: the expert drops the token
};

// x [n, h]; the product with the weight is in fp32 (fp64). Adds n L, the balance of the layer, to
// context.balance.sum, if there is one; the gradient of balance_factor n L, times
// context.balance.scale, is added in backward. The choices that the balance counts are those of the
// scores alone, without bias and groups, as in Megatron-core. With balances_samples n L is the sum
// over the samples of their rows times the L of these rows (`seq_aux_loss` of Megatron-core).
//
// Ranks of `context` gather their logits for the choices that the balance counts, so that L is of
// whole samples. The first of them adds it.
//
// With a capacity, where context.limits_experts, choices are dropped (kernels/experts.h,
// LimitChoices), as in Megatron-core: after the weights are known, which stay as they are, and
// unseen by the balance. The capacity is of the rows of a whole micro-batch: ranks of `context`
// gather their choices for it.
//
// With a bias backward adds ExcessChoices to its gradient, of the choices that stay. Counting is
// part of backward because each micro-batch of a step goes back exactly once, whatever is computed
// again, and because the sums of gradients over micro-batches and ranks then are those of the
// counts.
//
// With random logits, uniform in [-1, 1) and drawn by the global coordinates of rows (AddNoise),
// experts have about as many tokens each: for benchmarks. Backward gives their gradient to the
// logits of x, as Megatron-core's apply_random_logits does, so that no work is left out.
Routing routed(Context& context, const Value& x, const Router& router);

}  // namespace piton
