#include "nn/expert_mlp.h"

#include <utility>

#include "ops/dropout.h"
#include "ops/experts/expert_linear.h"
#include "ops/experts/expert_rows.h"
#include "ops/experts/gated_sum.h"
#include "ops/experts/row_scores.h"
#include "ops/linear/rank_rows.h"

namespace piton {
namespace {

std::string expert_name(const std::string& name, std::int64_t expert, const char* matrix) {
  return fmt::format("{}.experts.{}.{}.weight", name, expert, matrix);
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

Parameter up_parameter(const Shard& shard, const std::string& name, const ExpertMlpShape& shape,
                       const Initialization& initialization) {
  std::vector<Parameter> matrices;
  for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
    std::vector<RowPart> parts;
    if (shape.gated) parts.push_back({expert_name(name, expert, "gate"), shape.ffn_hidden});
    parts.push_back({expert_name(name, expert, "up"), shape.ffn_hidden});
    matrices.push_back(row_split_parameter(shard, "", parts, shape.hidden, initialization));
  }
  return stacked(name + (shape.gated ? ".experts.gate_up.weight" : ".experts.up.weight"), matrices);
}

Parameter down_parameter(const Shard& shard, const std::string& name, const ExpertMlpShape& shape,
                         const Initialization& initialization) {
  std::vector<Parameter> matrices;
  for (std::int64_t expert = 0; expert < shape.experts; ++expert) {
    matrices.push_back(column_split_parameter(shard, expert_name(name, expert, "down"),
                                              shape.hidden, shape.ffn_hidden, initialization));
  }
  return stacked(name + ".experts.down.weight", matrices);
}

Parameter* add(ParameterList& parameters, Parameter parameter) {
  parameter.contributions = 1;
  return &parameters.add(std::move(parameter));
}

}  // namespace

ExpertMlp::ExpertMlp(ParameterList& parameters, const Shard& shard, const std::string& name,
                     const ExpertMlpShape& shape, const BranchInitialization& initialization)
    : shard_(shard),
      shape_(shape),
      site_(name + ".dropout"),
      router_(add(parameters, router_parameter(shard, name, shape, initialization.input))),
      up_(add(parameters, up_parameter(shard, name, shape, initialization.input))),
      down_(add(parameters, down_parameter(shard, name, shape, initialization.output))) {
  shape_.rules.balance_factor /= shard.size();
  if (shape.shared) {
    if (shape.shared->gate) {
      shared_gate_ = add(parameters, replicated_parameter(shard, name + ".shared_gate.weight", 1,
                                                          shape.hidden, initialization.input));
    }
    shared_.emplace(parameters, shard, name + ".shared",
                    MlpShape{.hidden = shape.hidden,
                             .ffn_hidden = shape.shared->ffn_hidden,
                             .gated = shape.gated,
                             .activation = shape.activation},
                    initialization);
  }
  if (shape.end_norm) end_norm_.emplace(parameters, shard, name + ".end_norm", *shape.end_norm);
}

Value ExpertMlp::forward(Context& context, const Value& x, const Value* residual) const {
  Communicator& group = *shard_.group;
  const Value tokens = rows_of_ranks(context, x, group, shard_.splits_sequence());
  const Routing routing = routed(context, tokens, *router_, shape_.rules);
  const Tensor& first_rows = routing.rows.first_rows;
  const Value inner =
      expert_linear(context, dispatched(context, tokens, routing.rows), *up_, first_rows);
  const Value active = shape_.gated ? gated_activation(context, inner, shape_.activation)
                                    : activation_of(context, inner, shape_.activation);
  const Value rows = expert_linear(context, active, *down_, first_rows);
  Value y = combined(context, rows, routing.weights, routing.rows.places);
  y = sum_over_ranks(context, y, group, shard_.splits_sequence());
  if (shared_) y = with_shared(context, y, x);
  if (end_norm_) y = end_norm_->forward(context, y);
  return dropout_add(context, y, nullptr, residual,
                     {shape_.hidden_dropout, site_key(context.seed, site_),
                      shard_.residual_rows(context.rows, x.tensor.dim(0))});
}

// x: rows of the residual stream, as of forward().
Value ExpertMlp::with_shared(Context& context, const Value& experts, const Value& x) const {
  if (shared_gate_ == nullptr) return shared_->forward(context, x, &experts);
  const Value gate = row_scores(context, x, *shared_gate_);
  return gated_sum(context, experts, shared_->forward(context, x, nullptr), gate);
}

}  // namespace piton
