#include "nn/recurrent/delta_attention.h"

#include "nn/recurrent/sample_rows.h"
#include "ops/context/heads_exchange.h"
#include "ops/split.h"

namespace piton {
namespace {

// exp(rate) is uniform from nearly 0 to 16, as Transformers and Megatron-core draw it.
constexpr Initialization kRates{
    .kind = Initialization::Kind::kLogUniform, .bound = 16, .lowest = 0.01};

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
                                shape.width, initial_filters(shape.width));
        filters.is_table = true;
        // Channels of q, k and v that are exchanged are convolved one after another.
        return add_used(parameters, std::move(filters), shard.context.size() == 1 ? 1 : 3);
      }()),
      rates_(add_used(parameters,
                      row_split_parameter(shard, name + ".rate",
                                          {{name + ".rate", shape.value_heads}}, 0, kRates))),
      biases_(add_used(parameters, row_split_parameter(shard, name + ".decay_bias",
                                                       {{name + ".decay_bias", shape.value_heads}},
                                                       0, {.kind = Initialization::Kind::kOne}))),
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

DeltaAttention::Mixed DeltaAttention::mixed(Context& context, const Value& projected,
                                            const AttentionInput& input) const {
  const std::int64_t keys = shape_.key_heads / shard_.size() * shape_.key_size;
  const std::int64_t heads = shape_.value_heads / shard_.size();
  const std::int64_t values = heads * shape_.value_size;
  const std::vector<Value> parts =
      split_columns(context, projected, {2 * keys + values, values, heads, heads});
  const RecurrentRows rows = rows_of_pass(input);
  const std::vector<Value> mixed = split_columns(
      context, convolved(context, parts[0], {.weight = {*filters_}}, rows), {keys, keys, values});
  return {.out = delta_rule(context,
                            {.q = per_head(mixed[0], shape_.key_size),
                             .k = per_head(mixed[1], shape_.key_size),
                             .v = per_head(mixed[2], shape_.value_size),
                             .decay = parts[3],
                             .strength = parts[2]},
                            {*rates_}, {*biases_}, rows),
          .gate = parts[1]};
}

DeltaAttention::Mixed DeltaAttention::mixed_over_ranks(Context& context, const Value& projected,
                                                       const AttentionInput& input) const {
  Communicator& ranks = *shard_.context.heads;
  const std::int64_t n = projected.tensor.dim(0);
  const std::int64_t keys = shape_.key_heads / shard_.size() * shape_.key_size;
  const std::int64_t heads = shape_.value_heads / shard_.size();
  const std::int64_t values = heads * shape_.value_size;
  const std::vector<Value> parts =
      split_columns(context, projected, {keys, keys, values, values, heads, heads});
  const auto of_samples = [&](const Value& part, std::int64_t d) {
    return Value{part.tensor.split_dim(1, d).split_dim(0, n / input.batch), part.id};
  };
  const std::vector<Value> whole = whole_sequences(
      context,
      {of_samples(parts[0], shape_.key_size), of_samples(parts[1], shape_.key_size),
       of_samples(parts[2], shape_.value_size), of_samples(parts[4], 1), of_samples(parts[5], 1)},
      ranks);
  const std::int64_t all_rows = n * ranks.size();
  const RecurrentRows rows{
      .samples = input.batch, .segments = row_segments(input.of_ranks.rows), .cache = {}};
  const auto of_rows = [&](const Value& part) {  // [b, s, H, d] -> [b*s, H * d]
    return Value{part.tensor.reshape(Shape{all_rows, part.tensor.elements() / all_rows}), part.id};
  };
  // `first`: of the channels of this part of the projection, on all context ranks.
  const auto filtered = [&](const Value& part, std::int64_t first) {
    const Value x = of_rows(part);
    const std::int64_t own = first + ranks.rank() * x.tensor.dim(1);
    return per_head(convolved(context, x, {.weight = {*filters_, own}}, rows), part.tensor.dim(3));
  };
  const std::int64_t own_heads = heads / ranks.size();
  const std::int64_t first_head = ranks.rank() * own_heads;
  const Value q = filtered(whole[0], 0), k = filtered(whole[1], keys);
  const Value v = filtered(whole[2], 2 * keys);
  const Value out = delta_rule(
      context, {.q = q, .k = k, .v = v, .decay = of_rows(whole[4]), .strength = of_rows(whole[3])},
      {*rates_, first_head}, {*biases_, first_head}, rows);
  const Value own = own_rows(
      context,
      {out.tensor.reshape({input.batch, all_rows / input.batch, own_heads, shape_.value_size}),
       out.id},
      ranks);
  return {.out = {own.tensor.reshape(Shape{n, heads, shape_.value_size}), own.id},
          .gate = parts[3]};
}

Value DeltaAttention::forward(Context& context, const Value& x, const Value& residual,
                              const AttentionInput& input) const {
  const Value projected = input_.forward(context, x);
  // Texts with a cache are whole on every rank.
  const bool whole = shard_.context.size() == 1 || input.states.given();
  const auto [out, gate] =
      whole ? mixed(context, projected, input) : mixed_over_ranks(context, projected, input);
  const Shape shape = out.tensor.shape();
  const Value normed =
      norm_.forward(context, {out.tensor.reshape(Shape{shape[0] * shape[1], shape[2]}), out.id});
  const Value y =
      gated(context, {normed.tensor.reshape(Shape{shape[0], shape[1] * shape[2]}), normed.id}, gate,
            ActivationKind::kSilu);
  return output_.forward(context, y, &residual,
                         {shape_.hidden_dropout, site_key(context.seed, output_site_),
                          shard_.residual_rows(context.rows, residual.tensor.dim(0))});
}

}  // namespace piton
