#include "nn/recurrent/state_space.h"

#include "nn/recurrent/sample_rows.h"
#include "ops/context/heads_exchange.h"
#include "ops/split.h"

namespace piton {
namespace {

// exp(rate) is uniform from 1 to 16, and steps have uniform logarithms from 0.001 to 0.1, as
// Megatron-core and the authors draw them.
constexpr Initialization kInitialRates{
    .kind = Initialization::Kind::kLogUniform, .bound = 16, .lowest = 1};
constexpr Initialization kInitialSteps{
    .kind = Initialization::Kind::kSoftplusLogUniform, .bound = 0.1, .lowest = 0.001};

Parameter* add_table(ParameterList& parameters, Parameter parameter, int contributions = 1) {
  parameter.is_table = true;
  return add_used(parameters, std::move(parameter), contributions);
}

// One number of each head.
Parameter* of_heads(ParameterList& parameters, const Shard& shard, const std::string& name,
                    std::int64_t heads, const Initialization& initialization) {
  return add_used(parameters, row_split_parameter(shard, name, {{name, heads}}, 0, initialization));
}

Value joined_heads(const Value& x) {
  const Shape& shape = x.tensor.shape();
  return {x.tensor.reshape(Shape{shape[0], shape[1] * shape[2]}), x.id};
}

}  // namespace

std::int64_t groups_of_rank(std::int64_t groups, int t) {
  return groups % t == 0 ? groups / t : groups;
}

StateSpace::StateSpace(ParameterList& parameters, const Shard& shard, const std::string& name,
                       const StateSpaceShape& shape, const BranchInitialization& initialization)
    : shard_(shard),
      shape_(shape),
      output_site_(name + ".output.dropout"),
      input_(parameters, shard, name + ".input",
             {.parts = {{name + ".gate", shape.heads * shape.head_size},
                        {name + ".value", shape.heads * shape.head_size},
                        {name + ".step", shape.heads}},
              .in = shape.hidden,
              .initialization = initialization.input,
              .adapters = shape.adapters,
              .joint_adapter = name + ".input"}),
      shared_(parameters, shard, name + ".shared",
              {.parts = {{name + ".key", shape.groups * shape.state_size},
                         {name + ".query", shape.groups * shape.state_size}},
               .in = shape.hidden,
               .initialization = initialization.input,
               .adapters = shape.adapters,
               .whole = shape.groups % shard.size() != 0,
               .joint_adapter = name + ".input"}),
      norm_(parameters, shard, name + ".norm",
            {.kind = NormKind::kRms,
             .width = shape.heads * shape.head_size,
             .eps = shape.norm_eps,
             .over_ranks = shape.groups == 1,
             .groups = shape.groups}),
      output_(parameters, shard, name + ".output",
              {.out = shape.hidden,
               .in = shape.heads * shape.head_size,
               .factor = shape.output_factor,
               .initialization = initialization.output,
               .adapters = shape.adapters}) {
  const std::int64_t values = shape.heads * shape.head_size;
  const std::int64_t keys = shape.groups * shape.state_size;
  const Initialization filters = initial_filters(shape.width);
  const bool divided = shape.groups % shard.size() == 0;
  const auto of_groups = divided ? row_split_parameter : shared_parameter;
  filters_ = add_table(
      parameters, row_split_parameter(shard, name + ".filters", {{name + ".value_filter", values}},
                                      shape.width, filters));
  filter_biases_ = add_used(
      parameters, row_split_parameter(shard, name + ".filter_biases",
                                      {{name + ".value_filter_bias", values}}, 0, filters));
  // Keys and queries that are exchanged are convolved one after another.
  const int uses = shard.context.size() == 1 ? 1 : 2;
  shared_filters_ =
      add_table(parameters,
                of_groups(shard, name + ".shared_filters",
                          {{name + ".key_filter", keys}, {name + ".query_filter", keys}},
                          shape.width, filters),
                uses);
  shared_filter_biases_ =
      add_used(parameters,
               of_groups(shard, name + ".shared_filter_biases",
                         {{name + ".key_filter_bias", keys}, {name + ".query_filter_bias", keys}},
                         0, filters),
               uses);
  rates_ = of_heads(parameters, shard, name + ".rate", shape.heads, kInitialRates);
  step_biases_ = of_heads(parameters, shard, name + ".step_bias", shape.heads, kInitialSteps);
  skips_ = of_heads(parameters, shard, name + ".skip", shape.heads,
                    {.kind = Initialization::Kind::kOne});
}

StateSpaceParameters StateSpace::heads_from(std::int64_t begin) const {
  return {.rate = {*rates_, begin}, .bias = {*step_biases_, begin}, .skip = {*skips_, begin}};
}

Value StateSpace::mixed(Context& context, const Value& value, const Value& step,
                        const Value& shared, const AttentionInput& input) const {
  const std::int64_t keys = groups_of_rank(shape_.groups, shard_.size()) * shape_.state_size;
  const RecurrentRows rows = rows_of_pass(input);
  RecurrentRows shared_rows = rows;
  shared_rows.cache.rows = rows.cache.shared_rows;
  const Value v = convolved(context, value,
                            {.weight = {*filters_}, .bias = ParameterRows{*filter_biases_}}, rows);
  const std::vector<Value> of_groups = split_columns(
      context,
      convolved(context, shared,
                {.weight = {*shared_filters_}, .bias = ParameterRows{*shared_filter_biases_}},
                shared_rows),
      {keys, keys});
  return state_space(context,
                     {.q = per_head(of_groups[1], shape_.state_size),
                      .k = per_head(of_groups[0], shape_.state_size),
                      .v = per_head(v, shape_.head_size),
                      .step = step},
                     heads_from(0), rows);
}

Value StateSpace::mixed_over_ranks(Context& context, const Value& value, const Value& step,
                                   const Value& shared, const AttentionInput& input) const {
  Communicator& ranks = *shard_.context.heads;
  const std::int64_t n = value.tensor.dim(0);
  const std::int64_t groups = groups_of_rank(shape_.groups, shard_.size());
  const std::int64_t keys = groups * shape_.state_size;
  const std::int64_t heads = shape_.heads / shard_.size();
  const bool divided = groups % ranks.size() == 0;
  const auto of_samples = [&](const Value& heads_of_rows) {  // [n, H, d] -> [b, n/b, H, d]
    return Value{heads_of_rows.tensor.split_dim(0, n / input.batch), heads_of_rows.id};
  };
  const std::vector<Value> of_groups = split_columns(context, shared, {keys, keys});
  const auto for_each_rank = [&](const Value& rows) {
    return of_samples(divided ? per_head(rows, shape_.state_size)
                              : copied_heads(context, rows, ranks.size()));
  };
  const std::vector<Value> whole =
      whole_sequences(context,
                      {of_samples(per_head(value, shape_.head_size)), of_samples(per_head(step, 1)),
                       for_each_rank(of_groups[0]), for_each_rank(of_groups[1])},
                      ranks);
  const std::int64_t all_rows = n * ranks.size();
  const RecurrentRows rows{
      .samples = input.batch, .segments = row_segments(input.of_ranks.rows), .cache = {}};
  const auto of_rows = [&](const Value& part) {  // [b, s, H, d] -> [b*s, H * d]
    return Value{part.tensor.reshape(Shape{all_rows, part.tensor.elements() / all_rows}), part.id};
  };
  // `first`: of the channels of this part of the convolution, on all context ranks.
  const auto filtered = [&](const Value& part, std::int64_t first) {
    const Value x = of_rows(part);
    const std::int64_t own = first + (divided ? ranks.rank() * x.tensor.dim(1) : 0);
    return per_head(convolved(context, x,
                              {.weight = {*shared_filters_, own},
                               .bias = ParameterRows{*shared_filter_biases_, own}},
                              rows),
                    shape_.state_size);
  };
  const Value x = of_rows(whole[0]);
  const std::int64_t own = ranks.rank() * x.tensor.dim(1);
  const Value v = per_head(
      convolved(context, x,
                {.weight = {*filters_, own}, .bias = ParameterRows{*filter_biases_, own}}, rows),
      shape_.head_size);
  const std::int64_t own_heads = heads / ranks.size();
  const Value k = filtered(whole[2], 0);
  const Value q = filtered(whole[3], keys);
  const Value out = state_space(context, {.q = q, .k = k, .v = v, .step = of_rows(whole[1])},
                                heads_from(ranks.rank() * own_heads), rows);
  const Value back = own_rows(
      context,
      {out.tensor.reshape({input.batch, all_rows / input.batch, own_heads, shape_.head_size}),
       out.id},
      ranks);
  return {back.tensor.reshape(Shape{n, heads, shape_.head_size}), back.id};
}

Value StateSpace::forward(Context& context, const Value& x, const Value& residual,
                          const AttentionInput& input) const {
  const std::int64_t heads = shape_.heads / shard_.size();
  const std::int64_t values = heads * shape_.head_size;
  const std::vector<Value> parts =
      split_columns(context, input_.forward(context, x), {values, values, heads});
  const Value shared = shared_.forward(context, x);
  // Texts with a cache are whole on every rank.
  const bool whole = shard_.context.size() == 1 || input.states.given();
  const Value out = whole ? mixed(context, parts[1], parts[2], shared, input)
                          : mixed_over_ranks(context, parts[1], parts[2], shared, input);
  const Value y =
      norm_.forward(context, gated(context, joined_heads(out), parts[0], ActivationKind::kSilu));
  return output_.forward(context, y, &residual,
                         {shape_.hidden_dropout, site_key(context.seed, output_site_),
                          shard_.residual_rows(context.rows, residual.tensor.dim(0))});
}

}  // namespace piton
