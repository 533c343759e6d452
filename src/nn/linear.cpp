#include "nn/linear.h"

#include "ops/dropout.h"

namespace piton {

ColumnLinear::ColumnLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
                           const ColumnLinearShape& shape)
    : shard_(shard) {
  std::vector<RowPart> weights;
  std::vector<RowPart> biases;
  for (const RowPart& part : shape.parts) {
    weights.push_back({part.name + ".weight", part.out});
    biases.push_back({part.name + ".bias", part.out});
  }
  weight_ = &parameters.add(
      row_split_parameter(shard, name + ".weight", weights, shape.in, shape.initialization));
  weight_->contributions += 1;
  if (shape.bias) {
    bias_ = &parameters.add(row_split_parameter(shard, name + ".bias", biases, 0, {}));
    bias_->contributions += 1;
  }
}

Value ColumnLinear::forward(Context& context, const Value& x,
                            std::optional<ActivationKind> activation) const {
  return column_linear(context, x, {*weight_, *shard_.group, shard_.strategy},
                       {.bias = bias_, .output = shard_.dtype, .activation = activation});
}

RowLinear::RowLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
                     const RowLinearShape& shape)
    : shard_(shard) {
  weight_ = &parameters.add(
      column_split_parameter(shard, name + ".weight", shape.out, shape.in, shape.initialization));
  weight_->contributions += 1;
  if (shape.bias) {
    bias_ = &parameters.add(replicated_parameter(shard, name + ".bias", shape.out, 0, {}));
    bias_->contributions += 1;
  }
}

Value RowLinear::forward(Context& context, const Value& x, const Value* residual,
                         const Dropout& dropout) const {
  const SplitWeight split{*weight_, *shard_.group, shard_.strategy};
  if (!norm_) return row_linear(context, x, split, {bias_, residual, dropout});
  const Value sum =
      row_linear(context, x, split, {.bias = bias_, .residual = nullptr, .dropout = {}});
  return dropout_add(context, norm_->forward(context, sum), nullptr, residual, dropout);
}

}  // namespace piton
