#include "ops/experts/routing.h"

#include <utility>

#include "ops/experts/row_scores.h"

namespace piton {
namespace {

// The backward function of the routing, and what it needs from forward.
struct RoutingNode {
  std::int64_t logits_id = -1;
  std::int64_t weights_id = -1;
  RoutingRules rules;
  Kept scale = {};  // of the balance
  Kept logits = {};
  Kept choices = {};
  Kept counts = {};
  Parameter* bias = nullptr;  // whose gradient counts the choices

  void run(Backward& backward) const {
    if (bias != nullptr) count(backward);
    const Tensor dweights = backward.take(weights_id);
    const bool balances = rules.balance_factor != 0 && scale.defined();
    if (!dweights.defined() && !balances) return;
    Context& context = backward.context();
    const Tensor logits_of_x = logits.get();
    Tensor dlogits = context.activation(logits_of_x.dtype(), logits_of_x.shape());
    context.kernels.run(RouteBackward{.dlogits = dlogits,
                                      .dweights = dweights,
                                      .logits = logits_of_x,
                                      .choices = choices.get(),
                                      .counts = balances ? counts.get() : Tensor(),
                                      .scale = balances ? scale.get() : Tensor(),
                                      .balance_factor = balances ? rules.balance_factor : 0,
                                      .normalized = rules.normalized,
                                      .score = rules.score,
                                      .factor = rules.factor},
                        context.stream);
    backward.give(logits_id, std::move(dlogits));
  }

  void count(Backward& backward) const {
    backward.defer([bias = bias, choices = backward.for_job(choices)](Context& context) {
      const Tensor excess = context.weights.gradient(*bias, context.stream);
      context.kernels.run(ExcessChoices{.excess = excess, .choices = choices.get()},
                          context.stream);
      context.weights.contribute(*bias, context.stream);
    });
  }
};

// How often each expert is chosen by the scores alone, for the balance.
Tensor count_for_balance(Context& context, const Tensor& logits, const RoutingRules& rules) {
  const std::int64_t n = logits.dim(0);
  const Tensor counts = context.activation(DType::kI32, {logits.dim(1)});
  context.kernels.run(RouteTokens{.weights = context.workspace(logits.dtype(), {n, rules.choices}),
                                  .choices = context.workspace(DType::kI32, {n, rules.choices}),
                                  .counts = counts,
                                  .balance = context.balance.sum,
                                  .logits = logits,
                                  .score = rules.score},
                      context.stream);
  return counts;
}

}  // namespace

Routing routed(Context& context, const Value& x, Parameter& router, Parameter* bias,
               const RoutingRules& rules) {
  const std::int64_t n = x.tensor.dim(0);
  const std::int64_t experts = router.shape[0];
  const Value logits = row_scores(context, x, router);
  Routing routing{.weights = {context.activation(logits.tensor.dtype(), {n, rules.choices})},
                  .choices = context.activation(DType::kI32, {n, rules.choices})};
  const bool balances = context.balance.sum.defined() ||
                        (rules.balance_factor != 0 && context.balance.scale.defined());
  // Whether the balance counts other choices than these.
  const bool apart = balances && (bias != nullptr || rules.groups.divide());
  Tensor counts;
  if (balances) {
    counts = apart ? count_for_balance(context, logits.tensor, rules)
                   : context.activation(DType::kI32, {experts});
  }
  {
    WeightUse use;
    if (bias != nullptr) use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
    context.kernels.run(RouteTokens{.weights = routing.weights.tensor,
                                    .choices = routing.choices,
                                    .counts = apart ? Tensor() : counts,
                                    .balance = apart ? Tensor() : context.balance.sum,
                                    .logits = logits.tensor,
                                    .normalized = rules.normalized,
                                    .score = rules.score,
                                    .factor = rules.factor,
                                    .bias = bias != nullptr ? use.rows() : Tensor(),
                                    .groups = rules.groups},
                        context.stream);
  }
  if (context.tape == nullptr) return routing;
  routing.weights = context.tape->output(routing.weights.tensor);
  RoutingNode node{.logits_id = logits.id,
                   .weights_id = routing.weights.id,
                   .rules = rules,
                   .scale = context.tape->keep(context.balance.scale),
                   .logits = context.tape->keep(logits.tensor),
                   .choices = context.tape->keep(routing.choices),
                   .counts = context.tape->keep(counts),
                   .bias = bias != nullptr && bias->trainable ? bias : nullptr};
  context.tape->record([node = std::move(node)](Backward& backward) { node.run(backward); });
  return routing;
}

}  // namespace piton
