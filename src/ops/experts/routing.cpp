#include "ops/experts/routing.h"

#include <utility>

namespace piton {
namespace {

// The backward function of the routing, and what it needs from forward.
struct RoutingNode {
  std::int64_t x_id = -1;
  std::int64_t weights_id = -1;
  DType dtype = DType::kF32;  // of x
  Parameter* router = nullptr;
  RoutingRules rules;
  Kept scale = {};  // of the balance
  Kept x = {};
  Kept logits = {};
  Kept choices = {};
  Kept counts = {};

  void run(Backward& backward) const {
    const Tensor dweights = backward.take(weights_id);
    const bool balances = rules.balance_factor != 0 && scale.defined();
    if (!dweights.defined() && !balances) return;
    Context& context = backward.context();
    const Tensor logits_of_x = logits.get();
    const Tensor dlogits = context.activation(logits_of_x.dtype(), logits_of_x.shape());
    context.kernels.run(RouteBackward{.dlogits = dlogits,
                                      .dweights = dweights,
                                      .logits = logits_of_x,
                                      .choices = choices.get(),
                                      .counts = balances ? counts.get() : Tensor(),
                                      .scale = balances ? scale.get() : Tensor(),
                                      .balance_factor = balances ? rules.balance_factor : 0,
                                      .normalized = rules.normalized},
                        context.stream);
    if (x_id >= 0) {
      Tensor dx = context.activation(dtype, {dlogits.dim(0), router->shape[1]});
      const WeightUse use = context.weights.acquire(*router, WeightForm::kBackward, context.stream);
      context.kernels.run(LinearBackwardInput{.dx = dx, .dy = dlogits, .weight = use.view()},
                          context.stream);
      backward.give(x_id, std::move(dx));
    }
    if (!router->trainable) return;
    backward.defer([router = router, dlogits, x = backward.for_job(x)](Context& context) {
      const auto [dweight, overwrites] = context.weights.gradient_buffer(*router, context.stream);
      if (!dweight.defined()) return;
      context.kernels.run(
          LinearBackwardWeight{
              .dweight = dweight, .dy = dlogits, .x = x.get(), .overwrites = overwrites},
          context.stream);
      context.weights.contribute(*router, context.stream);
    });
  }
};

}  // namespace

Routing routed(Context& context, const Value& x, Parameter& router, const RoutingRules& rules) {
  const std::int64_t n = x.tensor.dim(0);
  const std::int64_t experts = router.shape[0];
  const DType sums = sum_dtype(x.tensor.dtype());
  const Tensor logits = context.activation(sums, {n, experts});
  {
    const WeightUse use =
        acquire_forward(context.weights, router, n, context.kernels, context.stream);
    context.kernels.run(LinearForward{.y = logits, .x = x.tensor, .weight = use.view()},
                        context.stream);
  }
  Routing routing{.weights = {context.activation(sums, {n, rules.choices})},
                  .choices = context.activation(DType::kI32, {n, rules.choices})};
  const bool balances = context.balance.sum.defined() ||
                        (rules.balance_factor != 0 && context.balance.scale.defined());
  const Tensor counts = balances ? context.activation(DType::kI32, {experts}) : Tensor();
  context.kernels.run(RouteTokens{.weights = routing.weights.tensor,
                                  .choices = routing.choices,
                                  .counts = counts,
                                  .balance = context.balance.sum,
                                  .logits = logits,
                                  .normalized = rules.normalized},
                      context.stream);
  if (context.tape == nullptr) return routing;
  routing.weights = context.tape->output(routing.weights.tensor);
  RoutingNode node{.x_id = x.id,
                   .weights_id = routing.weights.id,
                   .dtype = x.tensor.dtype(),
                   .router = &router,
                   .rules = rules,
                   .scale = context.tape->keep(context.balance.scale),
                   .logits = context.tape->keep(logits),
                   .choices = context.tape->keep(routing.choices),
                   .counts = context.tape->keep(counts)};
  if (router.trainable) node.x = context.tape->keep(x.tensor);
  context.tape->record([node = std::move(node)](Backward& backward) { node.run(backward); });
  return routing;
}

}  // namespace piton
