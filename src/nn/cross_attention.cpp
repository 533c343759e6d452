#include "nn/cross_attention.h"

#include <cmath>

#include "ops/split.h"

namespace piton {

CrossAttention::CrossAttention(ParameterList& parameters, const Shard& shard,
                               const std::string& name, const AttentionShape& shape,
                               const BranchInitialization& initialization)
    : shard_(shard),
      shape_(shape),
      attention_site_(name + ".dropout"),
      output_site_(name + ".output.dropout"),
      query_(parameters, shard, name + ".query",
             {.parts = {{name + ".query", shape.heads * shape.head_size}},
              .in = shape.hidden,
              .bias = shape.qkv_biases,
              .initialization = initialization.input}),
      key_value_(parameters, shard, name + ".key_value",
                 {.parts = {{name + ".key", shape.groups * shape.head_size},
                            {name + ".value", shape.groups * shape.head_size}},
                  .in = shape.hidden,
                  .bias = shape.qkv_biases,
                  .initialization = initialization.input}),
      output_(parameters, shard, name + ".output",
              {.out = shape.hidden,
               .in = shape.heads * shape.head_size,
               .bias = shape.output_bias,
               .initialization = initialization.output}) {}

std::pair<Value, Value> CrossAttention::keys_and_values(Context& context,
                                                        const Value& source) const {
  const std::int64_t width = shape_.groups / shard_.size() * shape_.head_size;
  const std::vector<Value> parts =
      split_columns(context, key_value_.forward(context, source), {width, width});
  const auto per_head = [&](const Value& rows) {
    return Value{rows.tensor.split_dim(1, shape_.head_size), rows.id};
  };
  return {per_head(parts[0]), per_head(parts[1])};
}

Value CrossAttention::forward(Context& context, const Value& x, const Value& residual,
                              const CrossInput& input) const {
  const std::int64_t heads = shape_.heads / shard_.size();
  const std::int64_t d = shape_.head_size;
  const AttentionSettings settings{
      .scale = shape_.scale > 0 ? shape_.scale : 1.0 / std::sqrt(static_cast<double>(d)),
      .causal = false,
      .dropout = {shape_.attention_dropout, site_key(context.seed, attention_site_), context.rows},
      .head_begin = shard_.rank() * heads,
      .recompute = input.recompute};
  // A part, so that its gradient has the rows of the projection.
  const Value part = split_columns(context, query_.forward(context, x), {heads * d}).front();
  const Value q{part.tensor.split_dim(1, d), part.id};
  const auto attended = [&] {
    if (input.cache) return attend_to_written(context, *input.cache, q, settings);
    const auto [k, v] = keys_and_values(context, input.source);
    const auto per_sample = [&](const Value& all) {
      return Value{all.tensor.split_dim(0, all.tensor.dim(0) / input.batch), all.id};
    };
    return attend(context, {per_sample(q), per_sample(k), per_sample(v)},
                  {.key_lengths = input.lengths}, settings);
  };
  const Value mixed = attended();
  return output_.forward(context, mixed, &residual,
                         {shape_.hidden_dropout, site_key(context.seed, output_site_),
                          shard_.residual_rows(context.rows, residual.tensor.dim(0))});
}

void CrossAttention::write_keys(Context& context, const Tensor& source, const CacheView& cache,
                                const Tensor& slots) const {
  Context plain = context.with_tape(nullptr);
  const auto [k, v] = keys_and_values(plain, {source});
  context.kernels.run(
      CacheAppend{
          .keys = cache.keys, .values = cache.values, .k = k.tensor, .v = v.tensor, .slots = slots},
      context.stream);
}

}  // namespace piton
