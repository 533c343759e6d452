#include "nn/latent_attention.h"

#include <utility>

#include "nn/cached_latents.h"
#include "ops/head_parts.h"
#include "ops/linear/rank_rows.h"
#include "ops/split.h"

namespace piton {

LatentAttention::LatentAttention(ParameterList& parameters, const Shard& shard,
                                 const std::string& name, const LatentShape& latent,
                                 const BranchInitialization& initialization)
    : shard_(shard),
      shape_(latent.attention),
      latent_(latent),
      attention_site_(name + ".dropout"),
      output_site_(name + ".output.dropout"),
      query_down_(latent.query_rank == 0
                      ? std::nullopt
                      : std::optional(small(parameters, name + ".query_down", latent.query_rank,
                                            latent.query_rank, initialization.input))),
      query_(parameters, shard, name + ".query",
             {.parts = {{name + ".query", latent.attention.heads * latent.attention.head_size}},
              .in = latent.query_rank != 0 ? latent.query_rank : latent.attention.hidden,
              .initialization = initialization.input,
              .adapters = latent.attention.adapters}),
      down_(small(parameters, name + ".latent", latent.rank + latent.turned, latent.rank,
                  initialization.input)),
      key_value_(
          parameters, shard, name + ".key_value",
          {.parts = {{name + ".key_value", latent.attention.heads * (latent.own + latent.value)}},
           .in = latent.rank,
           .initialization = initialization.input,
           .adapters = latent.attention.adapters}),
      output_(parameters, shard, name + ".output",
              {.out = latent.attention.hidden,
               .in = latent.attention.heads * latent.value,
               .bias = latent.attention.output_bias,
               .factor = latent.attention.output_factor,
               .initialization = initialization.output,
               .adapters = latent.attention.adapters}) {
  if (latent.attention.end_norm)
    output_.end_with(Norm(parameters, shard, name + ".end_norm", *latent.attention.end_norm));
  key_value_.weight().keeps_rows = true;
}

// `width`: of the norm.
LatentAttention::Small LatentAttention::small(ParameterList& parameters, const std::string& name,
                                              std::int64_t out, std::int64_t width,
                                              const Initialization& initialization) const {
  Small one{.linear = WholeLinear(parameters, shard_, name,
                                  {.out = out,
                                   .in = shape_.hidden,
                                   .initialization = initialization,
                                   .alone = shard_.alone,
                                   .adapters = shape_.adapters})};
  if (latent_.norms) {
    one.norm.emplace(parameters, shard_, name + "_norm",
                     NormShape{.kind = NormKind::kRms, .width = width, .eps = latent_.norm_eps});
  }
  return one;
}

Value LatentAttention::small_rows(Context& context, const Value& x, const Small& small) const {
  return small.linear.forward(context, x, shard_.residual_rows(context.rows, x.tensor.dim(0)));
}

Value LatentAttention::normalized(Context& context, const Value& rows, const Small& small) const {
  return small.norm ? small.norm->forward(context, rows) : rows;
}

// [n, a/t, d], the last channels turned.
Value LatentAttention::queries(Context& context, const Value& x, const RotarySettings& turn) const {
  const Value from =
      query_down_ ? normalized(context, small_rows(context, x, *query_down_), *query_down_) : x;
  // A part, so that its gradient has the rows of the projection.
  const std::int64_t width = shape_.heads / shard_.size() * shape_.head_size;
  const Value all = split_columns(context, query_.forward(context, from), {width}).front();
  return rotary(context, {all.tensor.split_dim(1, shape_.head_size), all.id}, turn);
}

Value LatentAttention::forward(Context& context, const Value& x, const Value& residual,
                               const AttentionInput& input) const {
  const bool from_latents = input.cache && input.cache->of_latents();
  const Value heads =
      from_latents ? Value{mixed_from_latents(context, x, input)} : mixed(context, x, input);
  return output_.forward(context, heads, &residual,
                         {shape_.hidden_dropout, site_key(context.seed, output_site_),
                          shard_.residual_rows(context.rows, residual.tensor.dim(0))});
}

Tensor LatentAttention::mixed_from_latents(Context& context, const Value& x,
                                           const AttentionInput& input) const {
  RotarySettings turn = input.rotary;
  turn.convention = shape_.rotary;
  const std::vector<Value> parts =
      split_columns(context, small_rows(context, x, down_), {latent_.rank, latent_.turned});
  const Value latents = normalized(context, packed_rows(context, parts[0]), down_);
  return attend_to_latents(
      context,
      {.cache = *input.cache,
       .matrices = {key_value_.weight(), latent_.own, latent_.value},
       .settings = attention_settings(context, {shard_, shape_, attention_site_}, input),
       .turn = turn,
       .places = input.places},
      {.q = queries(context, x, {}).tensor,
       .latents = latents.tensor,
       .shared = parts[1].tensor.split_dim(1, latent_.turned)});
}

Value LatentAttention::mixed(Context& context, const Value& x, const AttentionInput& input) const {
  RotarySettings turn = input.rotary;
  turn.convention = shape_.rotary;
  const std::vector<Value> parts =
      split_columns(context, small_rows(context, x, down_), {latent_.rank, latent_.turned});
  // Of all rows. Each rank has a summand of the gradient, that of its heads.
  Value shared = packed_rows(context, parts[1]);
  shared = rows_of_ranks(context, shared, *shard_.group, shard_.splits_sequence());
  shared = split_columns(context, shared, {latent_.turned}).front();
  shared = rotary(context, {shared.tensor.split_dim(1, latent_.turned), shared.id}, turn);
  const Value latent = normalized(context, packed_rows(context, parts[0]), down_);
  turn.first_channel = latent_.own;
  const Value q = queries(context, x, turn);
  const HeadWidths widths{.own = latent_.own, .value = latent_.value, .padded = shape_.head_size};
  const auto [k, v] = keys_and_values(context, key_value_.forward(context, latent), shared, widths);
  const Value heads = attend_by(context, {shard_, shape_, attention_site_}, {q, k, v}, input);
  return trimmed_heads(context, heads, widths);
}

}  // namespace piton
