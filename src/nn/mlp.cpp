#include "nn/mlp.h"

namespace piton {
namespace {

std::vector<RowPart> up_parts(const std::string& name, const MlpShape& shape) {
  if (!shape.gated) return {{name + ".up", shape.ffn_hidden}};
  return {{name + ".gate", shape.ffn_hidden}, {name + ".up", shape.ffn_hidden}};
}

}  // namespace

Mlp::Mlp(ParameterList& parameters, const Shard& shard, const std::string& name,
         const MlpShape& shape, const BranchInitialization& initialization)
    : shard_(shard),
      shape_(shape),
      site_(name + ".dropout"),
      up_(parameters, shard, name + (shape.gated ? ".gate_up" : ".up"),
          {.parts = up_parts(name, shape),
           .in = shape.hidden,
           .bias = shape.biases,
           .initialization = initialization.input,
           .adapters = shape.adapters}),
      down_(parameters, shard, name + ".down",
            {.out = shape.hidden,
             .in = shape.ffn_hidden,
             .bias = shape.biases,
             .factor = shape.output_factor,
             .initialization = initialization.output,
             .adapters = shape.adapters}) {
  if (shape.end_norm) down_.end_with(Norm(parameters, shard, name + ".end_norm", *shape.end_norm));
}

Value Mlp::forward(Context& context, const Value& x, const Value* residual) const {
  const Value active = shape_.gated
                           ? up_.forward_gated(context, x, shape_.activation, shape_.gate_rule)
                           : up_.forward(context, x, shape_.activation);
  return down_.forward(context, active, residual,
                       {shape_.hidden_dropout, site_key(context.seed, site_),
                        shard_.residual_rows(context.rows, x.tensor.dim(0))});
}

}  // namespace piton
