#include "nn/expert_mlp.h"

#include <algorithm>
#include <utility>

#include "ops/dropout.h"
#include "ops/experts/expert_linear.h"
#include "ops/experts/gated_sum.h"
#include "ops/experts/row_scores.h"
#include "ops/linear/rank_rows.h"
#include "ops/scale.h"

namespace piton {
namespace {

std::string expert_name(const std::string& name, std::int64_t expert, const std::string& matrix,
                        const char* part = "weight") {
  return fmt::format("{}.experts.{}.{}.{}", name, expert, matrix, part);
}

// Each tensor rank has its columns of all experts, so each has a summand of the gradient of the
// router and of its input.
Parameter router_parameter(const Shard& shard, const std::string& name, const ExpertMlpShape& shape,
                           const Initialization& initialization) {
  Parameter router = replicated_parameter(shard, name + ".router.weight", shape.experts,
                                          shape.hidden, initialization);
  router.placement[Axis::kTensor].gradient_is_partial = shard.size() > 1;
  return router;
}

// Each tensor rank has a summand of the gradient, as of the router.
Parameter logit_bias_parameter(const Shard& shard, const std::string& name,
                               const ExpertMlpShape& shape) {
  Parameter bias = replicated_parameter(shard, name + ".router.logit_bias", shape.experts, 0, {});
  bias.placement[Axis::kTensor].gradient_is_partial = shard.size() > 1;
  return bias;
}

// Tensor ranks route the same tokens, so they count the same choices.
Parameter bias_parameter(const Shard& shard, const std::string& name, const ExpertMlpShape& shape) {
  Parameter bias = replicated_parameter(shard, name + ".router.bias", shape.experts, 0, {});
  bias.dtype = sum_dtype(shard.dtype);
  bias.placement[Axis::kTensor].gradient_is_partial = false;
  bias.sign_rate = shape.bias_rate;
  return bias;
}

ExpertRange experts_of_rank(const Shard& shard, std::int64_t experts) {
  const Communicator& ranks = *shard.experts;
  PITON_ASSERT(experts % ranks.size() == 0, "{} experts on {} ranks", experts, ranks.size());
  const std::int64_t count = experts / ranks.size();
  return {ranks.rank() * count, count};
}

// What the first product of an expert has.
std::vector<RowPart> first_parts(const ExpertMlpShape& shape) {
  std::vector<RowPart> parts;
  if (shape.gated) parts.push_back({"gate", shape.ffn_hidden});
  parts.push_back({"up", shape.ffn_hidden});
  return parts;
}

// The matrices, or with `bias` their biases.
Parameter up_parameter(const Shard& shard, const std::string& name, const ExpertMlpShape& shape,
                       const ExpertRange& here, const Initialization* initialization) {
  const bool bias = initialization == nullptr;
  const char* const part = bias ? "bias" : "weight";
  const std::string all =
      fmt::format("{}.experts.{}.{}", name, shape.gated ? "gate_up" : "up", part);
  return of_experts(shard, all, here, [&](std::int64_t expert) {
    std::vector<RowPart> parts = first_parts(shape);
    for (RowPart& one : parts) one.name = expert_name(name, expert, one.name, part);
    return row_split_parameter(shard, "", parts, bias ? 0 : shape.hidden,
                               bias ? Initialization{} : *initialization);
  });
}

// The first tensor rank adds them, so it has their gradient.
Parameter down_bias_parameter(const Shard& shard, const std::string& name,
                              const ExpertMlpShape& shape, const ExpertRange& here) {
  return of_experts(shard, name + ".experts.down.bias", here, [&](std::int64_t expert) {
    Parameter bias =
        replicated_parameter(shard, expert_name(name, expert, "down", "bias"), shape.hidden, 0, {});
    bias.placement[Axis::kTensor].gradient_is_partial = shard.size() > 1;
    return bias;
  });
}

Parameter down_parameter(const Shard& shard, const std::string& name, const ExpertMlpShape& shape,
                         const ExpertRange& here, const Initialization& initialization) {
  return of_experts(shard, name + ".experts.down.weight", here, [&](std::int64_t expert) {
    return column_split_parameter(shard, expert_name(name, expert, "down"), shape.hidden,
                                  shape.ffn_hidden, initialization);
  });
}

Parameter* add(ParameterList& parameters, Parameter parameter) {
  parameter.contributions = 1;
  return &parameters.add(std::move(parameter));
}

}  // namespace

ExpertMlp::ExpertMlp(ParameterList& parameters, const Shard& shard, const std::string& name,
                     const ExpertMlpShape& shape, const BranchInitialization& initialization)
    : shard_(shard),
      here_(experts_of_rank(shard, shape.experts)),
      shape_(shape),
      adapter_dropout_(shape.adapters != nullptr ? shape.adapters->dropout : 0),
      site_(name + ".dropout"),
      random_site_(name + ".router.random"),
      router_(add(parameters, router_parameter(shard, name, shape, initialization.input))),
      router_bias_(shape.bias_rate ? add(parameters, bias_parameter(shard, name, shape)) : nullptr),
      up_(add(parameters, up_parameter(shard, name, shape, here_, &initialization.input))),
      down_(add(parameters, down_parameter(shard, name, shape, here_, initialization.output))) {
  const ExpertProducts products{parameters, shard, name, here_, shape.adapters};
  up_adapters_ = adapters_of_first_product(products, first_parts(shape), shape.hidden);
  down_adapters_ = adapters_of_last_product(products, shape.hidden, shape.ffn_hidden);
  if (shape.biases) {
    logit_bias_ = add(parameters, logit_bias_parameter(shard, name, shape));
    up_bias_ = add(parameters, up_parameter(shard, name, shape, here_, nullptr));
    down_bias_ = add(parameters, down_bias_parameter(shard, name, shape, here_));
  }
  shape_.adapters = nullptr;
  shape_.rules.balance_factor /= shard.size();
  shape_.rules.z_factor /= shard.size();
  if (shape.shared) {
    if (shape.shared->gate) {
      shared_gate_ = add(parameters, replicated_parameter(shard, name + ".shared_gate.weight", 1,
                                                          shape.hidden, initialization.input));
    }
    shared_.emplace(parameters, shard, name + ".shared",
                    MlpShape{.hidden = shape.hidden,
                             .ffn_hidden = shape.shared->ffn_hidden,
                             .gated = shape.gated,
                             .biases = shape.biases,
                             .activation = shape.activation,
                             .gate_rule = shape.gate_rule,
                             .adapters = shape.adapters},
                    initialization);
  }
  if (shape.end_norm) end_norm_.emplace(parameters, shard, name + ".end_norm", *shape.end_norm);
}

std::int64_t ExpertMlp::most_rows(const Context& context, std::int64_t tokens) const {
  const std::int64_t ranks = shard_.experts->size();
  if (!context.limits_experts) return ranks * tokens;
  const Communicator* group = shard_.context.group;
  const std::int64_t whole = tokens * (group == nullptr ? 1 : group->size());
  return ranks * std::min(tokens, shape_.rules.capacity(whole, shape_.experts));
}

RowExchange ExpertMlp::exchange_of(Context& context, const Tensor& choices) const {
  Communicator& ranks = *shard_.experts;
  const std::int64_t most = most_rows(context, choices.dim(0) / ranks.size()) / ranks.size();
  return exchanged_rows(context, ranks, choices,
                        {.experts = shape_.experts,
                         .here = here_,
                         .most = most,
                         .rules = shape_.rules,
                         .reader = shard_.row_counts.get()});
}

ExpertMlp::SentTokens ExpertMlp::sent_tokens(Context& context, const Value& tokens) const {
  Communicator& ranks = *shard_.experts;
  const Routing routing = routed(context, tokens,
                                 {.weight = router_,
                                  .bias = router_bias_,
                                  .logit_bias = logit_bias_,
                                  .rules = shape_.rules,
                                  .context = shard_.context.group,
                                  .random_key = site_key(context.seed, random_site_)});
  const auto gathered = [&](const Value& x) {
    return start_rows_of_ranks(context, x, ranks, /*splits=*/true);
  };
  SentTokens sent{.count = tokens.tensor.dim(0), .choices = gathered({routing.choices})};
  if (shard_.row_counts != nullptr && ranks.size() > 1)
    sent.exchange = exchange_of(context, sent.choices.finish(context).tensor);
  const auto to_experts = [&](const Value& x) {
    return sent.exchange ? start_sent_rows(context, x, *sent.exchange) : gathered(x);
  };
  const bool weighs_inputs = shape_.weighs_inputs;
  sent.tokens = to_experts(weighs_inputs ? weighted(context, tokens, routing.weights) : tokens);
  if (!weighs_inputs) sent.weights = to_experts(routing.weights);
  return sent;
}

UnderWay ExpertMlp::experts_of(Context& context, SentTokens sent) const {
  const std::optional<RowExchange>& exchange = sent.exchange;
  const CountedRows* const used = exchange ? &exchange->used() : nullptr;
  const bool weighs_inputs = shape_.weighs_inputs;
  const Tensor choices = exchange ? exchange->choices : sent.choices.finish(context).tensor;
  const Value x = sent.tokens.finish(context);
  const Value weights = weighs_inputs ? Value{} : sent.weights.finish(context);
  const ExpertRows rows =
      sorted_rows(context, choices, here_, most_rows(context, sent.count), used);
  const std::int64_t width = shape_.ffn_hidden / shard_.size();
  const auto mask_of = [&](std::int64_t columns, std::int64_t first,
                           const std::vector<ExpertAdapter>& adapters) {
    if (adapters.empty()) return Tensor();
    return drawn_mask(context, shard_,
                      {.site = adapters[0].a.name + ".dropout",
                       .probability = adapter_dropout_,
                       .tokens = sent.count,
                       .width = columns,
                       .first_column = first},
                      rows, exchange ? &*exchange : nullptr);
  };
  const Value inner = expert_linear(context, dispatched(context, x, rows, used),
                                    {.weight = *up_,
                                     .bias = up_bias_,
                                     .adapters = up_adapters_,
                                     .mask = mask_of(shape_.hidden, 0, up_adapters_)},
                                    rows.first_rows);
  const Value active = shape_.gated ? gated_activation(context, inner, shape_.activation,
                                                       shape_.gate_rule, rows.used())
                                    : activation_of(context, inner, shape_.activation, rows.used());
  const Value outer = expert_linear(context, active,
                                    {.weight = *down_,
                                     .bias = down_bias_,
                                     .adds_bias = shard_.rank() == 0,
                                     .adapters = down_adapters_,
                                     .mask = mask_of(width, shard_.rank() * width, down_adapters_)},
                                    rows.first_rows);
  const Value y = weighs_inputs ? summed(context, outer, rows, used)
                                : combined(context, outer, weights, rows.places, used);
  return exchange ? start_returned_rows(context, y, *exchange)
                  : start_sum_over_ranks(context, y, *shard_.experts, /*splits=*/true);
}

Value ExpertMlp::forward(Context& context, const Value& x, const Value* residual) const {
  Communicator& group = *shard_.group;
  const Value tokens = rows_of_ranks(context, x, group, shard_.splits_sequence());
  SentTokens sent = sent_tokens(context, tokens);
  SharedPart shared = start_shared(context, x);
  UnderWay experts = experts_of(context, std::move(sent));
  // Where nothing travels, the second half and its sum with the experts can be one product.
  if (shared_ && (shared_gate_ != nullptr || shard_.experts->size() > 1))
    shared.result = shared_->second_half(context, shared.active, nullptr);
  Value y = sum_over_ranks(context, experts.finish(context), group, shard_.splits_sequence());
  if (shared_) y = with_shared(context, y, shared);
  if (end_norm_) y = end_norm_->forward(context, y);
  if (shape_.output_factor != 1) y = scaled(context, y, shape_.output_factor);
  return dropout_add(context, y, nullptr, residual,
                     {shape_.hidden_dropout, site_key(context.seed, site_),
                      shard_.residual_rows(context.rows, x.tensor.dim(0))});
}

// x: rows of the residual stream, as of forward().
ExpertMlp::SharedPart ExpertMlp::start_shared(Context& context, const Value& x) const {
  SharedPart shared;
  if (!shared_) return shared;
  if (shared_gate_ != nullptr) shared.gate = row_scores(context, x, *shared_gate_);
  shared.active = shared_->first_half(context, x);
  return shared;
}

Value ExpertMlp::with_shared(Context& context, const Value& experts,
                             const SharedPart& shared) const {
  if (shared_gate_ != nullptr) return gated_sum(context, experts, shared.result, shared.gate);
  if (!shared.result.tensor.defined())
    return shared_->second_half(context, shared.active, &experts);
  return dropout_add(context, shared.result, nullptr, &experts, {});
}

}  // namespace piton
