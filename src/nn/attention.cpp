#include "nn/attention.h"

#include <bit>
#include <cmath>
#include <utility>

#include "ops/context/context_attention.h"
#include "ops/split.h"

namespace piton {

std::vector<float> alibi_slopes(std::int64_t heads) {
  const auto lower = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  const auto slope = [](std::int64_t k, std::int64_t of) {
    return static_cast<float>(std::exp2(-8.0 * static_cast<double>(k) / static_cast<double>(of)));
  };
  std::vector<float> slopes;
  for (std::int64_t k = 1; k <= lower; ++k) slopes.push_back(slope(k, lower));
  for (std::int64_t k = 1; k <= heads - lower; ++k) slopes.push_back(slope(2 * k - 1, 2 * lower));
  return slopes;
}

namespace {

// Whether attention is to the cache, which then rotates queries and keys as it gets them: without,
// that would be a kernel for each of them.
bool attends_to_cache(const AttentionInput& input) {
  return input.cache && !input.places.query_reach.defined();
}

// The gate is next to the query, because both can share an adapter.
std::vector<RowPart> projected_parts(const std::string& name, const AttentionShape& shape) {
  std::vector<RowPart> parts{{name + ".query", shape.heads * shape.head_size},
                             {name + ".key", shape.groups * shape.head_size},
                             {name + ".value", shape.groups * shape.head_size}};
  if (shape.output_gate)
    parts.insert(parts.begin(), {name + ".gate", shape.heads * shape.head_size});
  return parts;
}

}  // namespace

AttentionSettings attention_settings(const Context& context, const AttentionSite& site,
                                     const AttentionInput& input) {
  const auto& [shard, shape, name, sinks] = site;
  return {.scale =
              shape.scale > 0 ? shape.scale : 1.0 / std::sqrt(static_cast<double>(shape.head_size)),
          .causal = shape.causal,
          .window_before = shape.window_before,
          .window_after = shape.window_after,
          .slopes = input.slopes,
          .bias = input.bias,
          .dropout = {shape.attention_dropout, site_key(context.seed, name), context.rows},
          .head_begin = shard.rank() * (shape.heads / shard.size()),
          .block_rows = shape.block_rows,
          .soft_cap = shape.soft_cap,
          .sinks = {.given = shape.softmax != SoftmaxKind::kVanilla, .values = sinks},
          .recompute = input.recompute};
}

Value attend_by(Context& context, const AttentionSite& site, const AttentionRows& rows,
                const AttentionInput& input, const RotarySettings& turn) {
  const auto& [shard, shape, name, sinks] = site;
  const AttentionSettings settings = attention_settings(context, site, input);
  if (attends_to_cache(input)) return attend_to_cache(context, *input.cache, rows, settings, turn);
  PITON_ASSERT(!turn.cosine.defined(), "{}: a rotation that is left to a cache", name);
  // The rows of a text from its beginning, of which some see later ones (Inference::logits).
  if (input.cache) write_to_cache(context, *input.cache, rows.k, rows.v);
  const std::int64_t sequence = rows.q.tensor.dim(0) / input.batch;
  const auto per_sample = [&](const Value& all) {
    return Value{all.tensor.split_dim(0, sequence), all.id};
  };
  const AttentionRows samples{per_sample(rows.q), per_sample(rows.k), per_sample(rows.v)};
  if (shard.context.size() == 1) return attend(context, samples, input.places, settings);
  return attend_over_ranks(context, samples, input.of_ranks, settings, shard.context);
}

Attention::Attention(ParameterList& parameters, const Shard& shard, const std::string& name,
                     const AttentionShape& shape, const BranchInitialization& initialization)
    : shard_(shard),
      shape_(shape),
      attention_site_(name + ".dropout"),
      output_site_(name + ".output.dropout"),
      qkv_(parameters, shard, name + ".qkv",
           {.parts = projected_parts(name, shape),
            .in = shape.hidden,
            .bias = shape.qkv_biases,
            .initialization = initialization.input,
            .adapters = shape.adapters}),
      output_(parameters, shard, name + ".output",
              {.out = shape.hidden,
               .in = shape.heads * shape.head_size,
               .bias = shape.output_bias,
               .factor = shape.output_factor,
               .initialization = initialization.output,
               .adapters = shape.adapters}) {
  if (shape.end_norm)
    output_.end_with(Norm(parameters, shard, name + ".end_norm", *shape.end_norm));
  if (shape.softmax == SoftmaxKind::kLearnable) {
    // Xavier's bound is of matrices.
    const Initialization& like = initialization.input;
    const bool is_normal = like.kind == Initialization::Kind::kNormal;
    sinks_ = &parameters.add(row_split_parameter(shard, name + ".sinks",
                                                 {{name + ".sinks", shape.heads}}, 0,
                                                 is_normal ? like : Initialization{}));
    sinks_->contributions = 1;
  }
  if (!shape.head_norm) return;
  // One for each head, or of rows of which each tensor rank has a part.
  const auto norm_of = [&](std::int64_t heads) {
    NormShape norm = *shape.head_norm;
    if (shape.joint_norms) norm.width *= heads;
    return norm;
  };
  query_norm_.emplace(parameters, shard, name + ".query_norm", norm_of(shape.heads));
  key_norm_.emplace(parameters, shard, name + ".key_norm", norm_of(shape.groups));
}

Value Attention::forward(Context& context, const Value& x, const Value& residual,
                         const AttentionInput& input) const {
  const std::int64_t heads = shape_.heads / shard_.size();
  const std::int64_t groups = shape_.groups / shard_.size();
  const std::int64_t d = shape_.head_size;
  std::vector<std::int64_t> widths{heads * d, groups * d, groups * d};
  if (shape_.output_gate) widths.insert(widths.begin(), heads * d);
  std::vector<Value> parts = split_columns(context, qkv_.forward(context, x), widths);
  Value gate;
  if (shape_.output_gate) {
    gate = parts.front();
    parts.erase(parts.begin());
  }
  RotarySettings turn = input.rotary;
  turn.convention = shape_.rotary;
  const bool one_table = !input.query_rotary.cosine.defined();
  RotarySettings query_turn = one_table ? turn : input.query_rotary;
  query_turn.convention = shape_.rotary;
  RotarySettings turn_in_cache;
  if (attends_to_cache(input) && !shape_.norms_after_rotary && one_table) {
    query_turn = {};
    turn_in_cache = std::exchange(turn, RotarySettings{});
  }
  // [n, heads * d] as [n, heads, d].
  const auto per_head = [&](const Value& rows) {
    return Value{rows.tensor.split_dim(1, d), rows.id};
  };
  const auto prepared = [&](const Value& part, const std::optional<Norm>& norm,
                            const RotarySettings& turn) {
    if (norm && shape_.joint_norms)
      return rotary(context, per_head(norm->forward(context, packed_rows(context, part))), turn);
    const auto normed = [&](const Value& rows) {
      const Value result = norm->forward(context, packed_rows(context, rows));
      return Value{result.tensor.reshape(rows.tensor.shape()), result.id};
    };
    const Value rows = per_head(part);
    if (norm && shape_.norms_after_rotary) return normed(rotary(context, rows, turn));
    return rotary(context, norm ? normed(rows) : rows, turn);
  };
  const AttentionRows rows{prepared(parts[0], query_norm_, query_turn),
                           prepared(parts[1], key_norm_, turn), per_head(parts[2])};

  Value mixed =
      attend_by(context, {shard_, shape_, attention_site_, sinks_}, rows, input, turn_in_cache);
  if (shape_.output_gate) mixed = gated(context, mixed, gate, ActivationKind::kSigmoid);
  return output_.forward(context, mixed, &residual,
                         {shape_.hidden_dropout, site_key(context.seed, output_site_),
                          shard_.residual_rows(context.rows, residual.tensor.dim(0))});
}

}  // namespace piton
