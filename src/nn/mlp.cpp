#include "nn/mlp.h"

namespace piton {
namespace {

std::vector<RowPart> up_parts(const std::string& name, const MlpShape& shape) {
  if (!shape.gated) return {{name + ".up", shape.ffn_hidden}};
  return {{name + ".gate", shape.ffn_hidden}, {name + ".up", shape.ffn_hidden}};
}

}  // namespace

Mlp::Mlp(ParameterList& parameters, const Shard& shard, const std::string& name,
         const MlpShape& shape, Initialization input, Initialization output, double hidden_dropout)
    : shard_(shard),
      shape_(shape),
      site_(name + ".dropout"),
      hidden_dropout_(hidden_dropout),
      up_(parameters, shard, name + (shape.gated ? ".gate_up" : ".up"), up_parts(name, shape),
          shape.hidden, shape.biases, input),
      down_(parameters, shard, name + ".down", shape.hidden, shape.ffn_hidden, shape.biases,
            output) {
  if (shape.end_norm) down_.end_with(Norm(parameters, shard, name + ".end_norm", *shape.end_norm));
}

Value Mlp::forward(Context& context, const Value& x, const Value& residual) const {
  const Value active = shape_.gated
                           ? gated_activation(context, up_.forward(context, x), shape_.activation)
                           : up_.forward(context, x, shape_.activation);
  return down_.forward(context, active, &residual,
                       {hidden_dropout_, site_key(context.seed, site_),
                        shard_.residual_rows(context.rows, residual.tensor.dim(0))});
}

}  // namespace piton
