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

Value Mlp::first_half(Context& context, const Value& x) const {
  return shape_.gated ? up_.forward_gated(context, x, shape_.activation, shape_.gate_rule)
                      : up_.forward(context, x, shape_.activation);
}

Value Mlp::second_half(Context& context, const Value& active, const Value* residual) const {
  const std::int64_t all_rows = active.tensor.dim(0);
  const std::int64_t rows = shard_.splits_sequence() ? all_rows / shard_.size() : all_rows;
  return down_.forward(context, active, residual,
                       {shape_.hidden_dropout, site_key(context.seed, site_),
                        shard_.residual_rows(context.rows, rows)});
}

Value Mlp::forward(Context& context, const Value& x, const Value* residual) const {
  return second_half(context, first_half(context, x), residual);
}

}  // namespace piton
