#include "ops/experts/routing.h"

#include <cmath>
#include <utility>

#include "ops/experts/row_scores.h"
#include "ops/experts/z_loss.h"

namespace piton {
namespace {

// The rows that one balance is of: a part of [n, ...] here, and those of other ranks.
struct BalancedRows {
  std::int64_t parts = 1;
  std::int64_t ranks = 1;

  Tensor part(const Tensor& tensor, std::int64_t i) const {
    if (!tensor.defined()) return tensor;
    const std::int64_t size = tensor.dim(0) / parts;
    return tensor.slice(0, i * size, size);
  }
};

// The backward function of the routing, and what it needs from forward.
struct RoutingNode {
  std::int64_t logits_id = -1;
  std::int64_t weights_id = -1;
  RoutingRules rules;
  BalancedRows balanced;
  Kept scale = {};  // of the balance
  Kept logits = {};
  Kept choices = {};
  Kept counts = {};
  Parameter* bias = nullptr;  // whose gradient counts the choices that stay
  Kept staying = {};
  bool limited = false;

  void run(Backward& backward) const {
    if (bias != nullptr) count(backward);
    const Tensor dweights = backward.take(weights_id);
    const bool balances = rules.balance_factor != 0 && scale.defined();
    if (!dweights.defined() && !balances) return;
    Context& context = backward.context();
    const Tensor logits_of_x = logits.get();
    const Tensor chosen = choices.get();
    Tensor dlogits = context.activation(logits_of_x.dtype(), logits_of_x.shape());
    const BalancedRows rows = balances ? balanced : BalancedRows();
    const double factor = rules.balance_factor / static_cast<double>(rows.ranks);
    for (std::int64_t i = 0; i < rows.parts; ++i) {
      context.kernels.run(RouteBackward{.dlogits = rows.part(dlogits, i),
                                        .dweights = rows.part(dweights, i),
                                        .logits = rows.part(logits_of_x, i),
                                        .choices = rows.part(chosen, i),
                                        .counts = balances ? rows.part(counts.get(), i) : Tensor(),
                                        .scale = balances ? scale.get() : Tensor(),
                                        .balance_factor = balances ? factor : 0,
                                        .normalized = rules.normalized,
                                        .score = rules.score,
                                        .factor = rules.factor},
                          context.stream);
    }
    backward.give(logits_id, std::move(dlogits));
  }

  void count(Backward& backward) const {
    backward.defer(
        [bias = bias, choices = backward.for_job(staying), limited = limited](Context& context) {
          const Tensor excess = context.weights.gradient(*bias, context.stream);
          context.kernels.run(
              ExcessChoices{.excess = excess, .choices = choices.get(), .limited = limited},
              context.stream);
          context.weights.contribute(*bias, context.stream);
        });
  }
};

// The rows of all ranks that have rows of the same samples.
Tensor rows_of_samples(Context& context, const Tensor& mine, Communicator* ranks) {
  if (ranks == nullptr || ranks->size() == 1) return mine;
  const Tensor all = context.activation(mine.dtype(), {mine.dim(0) * ranks->size(), mine.dim(1)});
  const Event ready = ranks->all_gather(all, mine, context.stream);
  for (const Tensor& tensor : {all, mine}) context.arena.hold(tensor, ready.fence());
  context.await(ready);
  return all;
}

// How often each expert is chosen by the scores alone, for the balance: [parts experts].
Tensor count_for_balance(Context& context, const Tensor& logits, const Router& router,
                         const BalancedRows& rows) {
  const std::int64_t k = router.rules.choices;
  const Tensor counts = context.activation(DType::kI32, {rows.parts * logits.dim(1)});
  const bool adds = router.context == nullptr || router.context->rank() == 0;
  for (std::int64_t i = 0; i < rows.parts; ++i) {
    const Tensor all = rows_of_samples(context, rows.part(logits, i), router.context);
    context.kernels.run(RouteTokens{.weights = context.workspace(all.dtype(), {all.dim(0), k}),
                                    .choices = context.workspace(DType::kI32, {all.dim(0), k}),
                                    .counts = rows.part(counts, i),
                                    .balance = adds ? context.balance.sum : Tensor(),
                                    .logits = all,
                                    .score = router.rules.score},
                        context.stream);
  }
  return counts;
}

BalancedRows balanced_rows(const Context& context, const Router& router, std::int64_t n) {
  BalancedRows rows;
  if (router.context != nullptr) rows.ranks = router.context->size();
  if (!router.rules.balances_samples) return rows;
  rows.parts = n / context.rows.sequence;
  PITON_ASSERT(rows.parts * context.rows.sequence == n, "{} rows of samples of {}", n,
               context.rows.sequence);
  return rows;
}

// The choices that stay, of a rank's part of the micro-batch.
Tensor limited_choices(Context& context, const Routing& routing, const Router& router,
                       std::int64_t experts) {
  const RoutingRules& rules = router.rules;
  const std::int64_t mine = routing.choices.dim(0);
  Communicator* const ranks = router.context;
  const std::int64_t size = ranks == nullptr ? 1 : ranks->size();
  const std::int64_t capacity = rules.capacity(mine * size, experts);
  if (capacity == mine * size) return routing.choices;
  const Tensor choices = rows_of_samples(context, routing.choices, ranks);
  const Tensor weights =
      rules.keeps_first ? Tensor() : rows_of_samples(context, routing.weights.tensor, ranks);
  const Tensor kept = context.activation(DType::kI32, choices.shape());
  context.kernels.run(
      LimitChoices{.kept = kept,
                   .choices = choices,
                   .weights = weights,
                   .experts = experts,
                   .capacity = capacity,
                   .rows = {.samples = mine / context.rows.sequence, .ranks = size}},
      context.stream);
  return size == 1 ? kept : kept.slice(0, ranks->rank() * mine, mine);
}

// Random logits in the place of these, with the same gradient.
Value with_random_numbers(Context& context, const Value& logits, const PhiloxKey& key) {
  const Tensor random = context.activation(logits.tensor.dtype(), logits.tensor.shape());
  context.device.zero(random, context.stream);
  context.kernels.run(AddNoise{.y = random, .bounds = {}, .key = key, .rows = context.rows},
                      context.stream);
  return {random, logits.id};
}

}  // namespace

std::int64_t RoutingRules::capacity(std::int64_t n, std::int64_t experts) const {
  if (capacity_factor == 0) return n;
  const double mean = static_cast<double>(n * choices) / static_cast<double>(experts);
  const double most = std::ceil(mean * capacity_factor);
  return most < static_cast<double>(n) ? static_cast<std::int64_t>(most) : n;
}

Routing routed(Context& context, const Value& x, const Router& router) {
  const RoutingRules& rules = router.rules;
  const std::int64_t n = x.tensor.dim(0);
  Value logits = row_scores(context, x, *router.weight, router.logit_bias);
  if (rules.random && context.limits_experts)
    logits = with_random_numbers(context, logits, router.random_key);
  add_z_loss(context, logits, rules.z_factor);
  Routing routing{.weights = {context.activation(logits.tensor.dtype(), {n, rules.choices})},
                  .choices = context.activation(DType::kI32, {n, rules.choices})};
  const bool balances = context.balance.sum.defined() ||
                        (rules.balance_factor != 0 && context.balance.scale.defined());
  const BalancedRows rows = balances ? balanced_rows(context, router, n) : BalancedRows();
  // Whether the balance counts other choices than these, or in parts.
  const bool apart = balances && (router.bias != nullptr || rules.groups.divide() ||
                                  rows.parts > 1 || rows.ranks > 1);
  Tensor counts;
  if (balances) {
    counts = apart ? count_for_balance(context, logits.tensor, router, rows)
                   : context.activation(DType::kI32, {router.weight->shape[0]});
  }
  {
    WeightUse use;
    if (router.bias != nullptr)
      use = context.weights.acquire(*router.bias, WeightForm::kRows, context.stream);
    context.kernels.run(RouteTokens{.weights = routing.weights.tensor,
                                    .choices = routing.choices,
                                    .counts = apart ? Tensor() : counts,
                                    .balance = apart ? Tensor() : context.balance.sum,
                                    .logits = logits.tensor,
                                    .normalized = rules.normalized,
                                    .score = rules.score,
                                    .factor = rules.factor,
                                    .bias = router.bias != nullptr ? use.rows() : Tensor(),
                                    .groups = rules.groups},
                        context.stream);
  }
  const Tensor chosen = routing.choices;
  const bool limited = rules.capacity_factor != 0 && context.limits_experts;
  if (limited) routing.choices = limited_choices(context, routing, router, router.weight->shape[0]);
  if (context.tape == nullptr) return routing;
  routing.weights = context.tape->output(routing.weights.tensor);
  RoutingNode node{.logits_id = logits.id,
                   .weights_id = routing.weights.id,
                   .rules = rules,
                   .balanced = rows,
                   .scale = context.tape->keep(context.balance.scale),
                   .logits = context.tape->keep(logits.tensor),
                   .choices = context.tape->keep(chosen),
                   .counts = context.tape->keep(counts),
                   .bias = router.bias != nullptr && router.bias->trainable ? router.bias : nullptr,
                   .staying = context.tape->keep(routing.choices),
                   .limited = limited};
  context.tape->record([node = std::move(node)](Backward& backward) { node.run(backward); });
  return routing;
}

}  // namespace piton
