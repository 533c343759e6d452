#include "nn/delta_attention.h"

#include <cmath>

#include "ops/split.h"

namespace piton {
namespace {

// As torch draws those of a convolution: uniform, by the root of the inputs of a channel.
Initialization filter_weights(std::int64_t width) {
  return {.kind = Initialization::Kind::kUniform,
          .bound = 1 / std::sqrt(static_cast<double>(width))};
}

// exp(rate) is uniform from nearly 0 to 16, as Transformers and Megatron-core draw it.
constexpr Initialization kRates{
    .kind = Initialization::Kind::kLogUniform, .bound = 16, .lowest = 0.01};

Parameter* added(ParameterList& parameters, Parameter parameter) {
  parameter.contributions = 1;
  return &parameters.add(std::move(parameter));
}

}  // namespace

DeltaAttention::DeltaAttention(ParameterList& parameters, const Shard& shard,
                               const std::string& name, const DeltaShape& shape,
                               const BranchInitialization& initialization)
    : shard_(shard),
      shape_(shape),
      output_site_(name + ".output.dropout"),
      input_(parameters, shard, name + ".input",
             {.parts = {{name + ".query", shape.key_heads * shape.key_size},
                        {name + ".key", shape.key_heads * shape.key_size},
                        {name + ".value", shape.value_heads * shape.value_size},
                        {name + ".gate", shape.value_heads * shape.value_size},
                        {name + ".strength", shape.value_heads},
                        {name + ".decay", shape.value_heads}},
              .in = shape.hidden,
              .initialization = initialization.input,
              .adapters = shape.adapters}),
      filters_([&] {
        Parameter filters =
            row_split_parameter(shard, name + ".filters",
                                {{name + ".query_filter", shape.key_heads * shape.key_size},
                                 {name + ".key_filter", shape.key_heads * shape.key_size},
                                 {name + ".value_filter", shape.value_heads * shape.value_size}},
                                shape.width, filter_weights(shape.width));
        filters.is_table = true;
        return added(parameters, std::move(filters));
      }()),
      rates_(
          added(parameters, row_split_parameter(shard, name + ".rate",
                                                {{name + ".rate", shape.value_heads}}, 0, kRates))),
      biases_(added(parameters, row_split_parameter(shard, name + ".decay_bias",
                                                    {{name + ".decay_bias", shape.value_heads}}, 0,
                                                    {.kind = Initialization::Kind::kOne}))),
      norm_(parameters, shard, name + ".norm",
            {.kind = NormKind::kRms,
             .width = shape.value_size,
             .eps = shape.norm_eps,
             .of_heads = true}),
      output_(parameters, shard, name + ".output",
              {.out = shape.hidden,
               .in = shape.value_heads * shape.value_size,
               .factor = shape.output_factor,
               .initialization = initialization.output,
               .adapters = shape.adapters}) {}

Value DeltaAttention::forward(Context& context, const Value& x, const Value& residual,
                              const AttentionInput& input) const {
  const std::int64_t ranks = shard_.size();
  const std::int64_t keys = shape_.key_heads / ranks * shape_.key_size;
  const std::int64_t values = shape_.value_heads / ranks * shape_.value_size;
  const std::int64_t heads = shape_.value_heads / ranks;
  const std::vector<Value> parts =
      split_columns(context, input_.forward(context, x), {2 * keys + values, values, heads, heads});
  RecurrentRows rows{.samples = input.batch, .segments = {}, .cache = input.states};
  const Tensor& segments = input.places.query_segments;
  if (segments.defined() && !rows.cache.given())
    rows.segments = segments.reshape(Shape{segments.elements()});
  const std::vector<Value> mixed =
      split_columns(context, convolved(context, parts[0], *filters_, rows), {keys, keys, values});
  const auto per_head = [](const Value& all, std::int64_t d) {
    return Value{all.tensor.split_dim(1, d), all.id};
  };
  const Value out = delta_rule(context,
                               {.q = per_head(mixed[0], shape_.key_size),
                                .k = per_head(mixed[1], shape_.key_size),
                                .v = per_head(mixed[2], shape_.value_size),
                                .decay = parts[3],
                                .strength = parts[2]},
                               *rates_, *biases_, rows);
  const std::int64_t n = out.tensor.dim(0);
  const Value normed =
      norm_.forward(context, {out.tensor.reshape(Shape{n * heads, shape_.value_size}), out.id});
  const Value y = gated(context, {normed.tensor.reshape(Shape{n, values}), normed.id}, parts[1],
                        ActivationKind::kSilu);
  return output_.forward(context, y, &residual,
                         {shape_.hidden_dropout, site_key(context.seed, output_site_),
                          shard_.residual_rows(context.rows, residual.tensor.dim(0))});
}

}  // namespace piton
