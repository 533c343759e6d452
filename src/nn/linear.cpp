#include "nn/linear.h"

#include "ops/dropout.h"

namespace piton {

ColumnLinear::ColumnLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
                           const std::vector<RowPart>& parts, std::int64_t in, bool bias,
                           Initialization initialization)
    : shard_(shard) {
  std::vector<RowPart> weights;
  std::vector<RowPart> biases;
  for (const RowPart& part : parts) {
    weights.push_back({part.name + ".weight", part.out});
    biases.push_back({part.name + ".bias", part.out});
  }
  weight_ =
      &parameters.add(row_split_parameter(shard, name + ".weight", weights, in, initialization));
  weight_->contributions += 1;
  if (bias) {
    bias_ = &parameters.add(row_split_parameter(shard, name + ".bias", biases, 0, {}));
    bias_->contributions += 1;
  }
}

Value ColumnLinear::forward(Context& context, const Value& x,
                            std::optional<ActivationKind> activation) const {
  return column_linear(context, x, *weight_, bias_, *shard_.group, shard_.strategy, shard_.dtype,
                       activation);
}

RowLinear::RowLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
                     std::int64_t out, std::int64_t in, bool bias, Initialization initialization)
    : shard_(shard) {
  weight_ =
      &parameters.add(column_split_parameter(shard, name + ".weight", out, in, initialization));
  weight_->contributions += 1;
  if (bias) {
    bias_ = &parameters.add(replicated_parameter(shard, name + ".bias", out, 0, {}));
    bias_->contributions += 1;
  }
}

Value RowLinear::forward(Context& context, const Value& x, const Value* residual,
                         const Dropout& dropout) const {
  if (!norm_) {
    return row_linear(context, x, *weight_, *shard_.group, shard_.strategy,
                      {bias_, residual, dropout});
  }
  const Value sum = row_linear(context, x, *weight_, *shard_.group, shard_.strategy,
                               {.bias = bias_, .residual = nullptr, .dropout = {}});
  return dropout_add(context, norm_->forward(context, sum), nullptr, residual, dropout);
}

}  // namespace piton
