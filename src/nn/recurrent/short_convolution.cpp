#include "nn/recurrent/short_convolution.h"

#include "nn/recurrent/sample_rows.h"
#include "ops/context/heads_exchange.h"
#include "ops/split.h"

namespace piton {

ShortConvolution::ShortConvolution(ParameterList& parameters, const Shard& shard,
                                   const std::string& name, const ShortConvolutionShape& shape,
                                   const BranchInitialization& initialization)
    : shard_(shard),
      shape_(shape),
      output_site_(name + ".output.dropout"),
      input_(parameters, shard, name + ".input",
             {.parts = {{name + ".input_gate", shape.hidden},
                        {name + ".output_gate", shape.hidden},
                        {name + ".value", shape.hidden}},
              .in = shape.hidden,
              .bias = shape.biases,
              .initialization = initialization.input,
              .adapters = shape.adapters,
              .joint_adapter = name + ".input"}),
      filters_([&] {
        Parameter filters =
            row_split_parameter(shard, name + ".filter", {{name + ".filter", shape.hidden}},
                                shape.width, initial_filters(shape.width));
        filters.is_table = true;
        return add_used(parameters, std::move(filters));
      }()),
      output_(parameters, shard, name + ".output",
              {.out = shape.hidden,
               .in = shape.hidden,
               .bias = shape.biases,
               .factor = shape.output_factor,
               .initialization = initialization.output,
               .adapters = shape.adapters}) {
  if (!shape.biases) return;
  filter_biases_ = add_used(parameters, row_split_parameter(shard, name + ".filter_bias",
                                                            {{name + ".filter_bias", shape.hidden}},
                                                            0, initial_filters(shape.width)));
}

FilterParameters ShortConvolution::filters_from(std::int64_t begin) const {
  if (filter_biases_ == nullptr) return {.weight = {*filters_, begin}, .silu = false};
  return {
      .weight = {*filters_, begin}, .bias = ParameterRows{*filter_biases_, begin}, .silu = false};
}

Value ShortConvolution::filtered(Context& context, const Value& rows,
                                 const AttentionInput& input) const {
  return convolved(context, rows, filters_from(0), rows_of_pass(input));
}

Value ShortConvolution::filtered_over_ranks(Context& context, const Value& rows,
                                            const AttentionInput& input) const {
  Communicator& ranks = *shard_.context.heads;
  const std::int64_t n = rows.tensor.dim(0);
  const std::int64_t channels = rows.tensor.dim(1);
  const std::int64_t own = channels / ranks.size();
  // [n, c u] -> [b, n/b, u, c] -> [b, n/b u, 1, c], for u ranks: the channels of one are a head.
  const Value whole = whole_sequences(
      context, {{rows.tensor.split_dim(1, own).split_dim(0, n / input.batch), rows.id}}, ranks)[0];
  const std::int64_t all_rows = n * ranks.size();
  const RecurrentRows places{
      .samples = input.batch, .segments = row_segments(input.of_ranks.rows), .cache = {}};
  const Value out = convolved(context, {whole.tensor.reshape(Shape{all_rows, own}), whole.id},
                              filters_from(ranks.rank() * own), places);
  const Value back = own_rows(
      context, {out.tensor.reshape({input.batch, all_rows / input.batch, 1, own}), out.id}, ranks);
  return {back.tensor.reshape(Shape{n, channels}), back.id};
}

Value ShortConvolution::forward(Context& context, const Value& x, const Value& residual,
                                const AttentionInput& input) const {
  const std::int64_t channels = shape_.hidden / shard_.size();
  const std::vector<Value> parts =
      split_columns(context, input_.forward(context, x), {channels, channels, channels});
  const Value product = gated(context, parts[2], parts[0], ActivationKind::kIdentity);
  // Texts with a cache are whole on every rank.
  const bool whole = shard_.context.size() == 1 || input.states.given();
  const Value sums =
      whole ? filtered(context, product, input) : filtered_over_ranks(context, product, input);
  const Value y = gated(context, sums, parts[1], ActivationKind::kIdentity);
  return output_.forward(context, y, &residual,
                         {shape_.hidden_dropout, site_key(context.seed, output_site_),
                          shard_.residual_rows(context.rows, residual.tensor.dim(0))});
}

}  // namespace piton
