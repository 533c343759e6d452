#include "nn/attention.h"

#include <bit>
#include <cmath>

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

Attention::Attention(ParameterList& parameters, const Shard& shard, const std::string& name,
                     const AttentionShape& shape, Initialization input, Initialization output,
                     double attention_dropout, double hidden_dropout)
    : shard_(shard),
      shape_(shape),
      attention_site_(name + ".dropout"),
      output_site_(name + ".output.dropout"),
      attention_dropout_(attention_dropout),
      hidden_dropout_(hidden_dropout),
      qkv_(parameters, shard, name + ".qkv",
           {{name + ".query", shape.heads * shape.head_size},
            {name + ".key", shape.groups * shape.head_size},
            {name + ".value", shape.groups * shape.head_size}},
           shape.hidden, shape.biases, input),
      output_(parameters, shard, name + ".output", shape.hidden, shape.heads * shape.head_size,
              shape.biases, output) {}

Value Attention::forward(Context& context, const Value& x, const Value& residual,
                         const AttentionInput& input) const {
  const Value qkv = qkv_.forward(context, x);
  AttentionSettings settings{.heads = shape_.heads / shard_.size(),
                             .groups = shape_.groups / shard_.size(),
                             .head_size = shape_.head_size,
                             .head_begin = shard_.rank() * (shape_.heads / shard_.size()),
                             .batch = input.batch,
                             .scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_size)),
                             .cosine = input.cosine,
                             .sine = input.sine,
                             .positions = input.positions,
                             .convention = shape_.rotary,
                             .block_rows = shape_.block_rows};
  settings.mask = {.window_before = shape_.window_before,
                   .window_after = shape_.window_after,
                   .query_segments = input.segments,
                   .key_segments = input.segments,
                   .slopes = input.slopes};
  settings.dropout = {attention_dropout_, site_key(context.seed, attention_site_), context.rows};
  const Value mixed = input.cache ? cached_attention(context, qkv, settings, *input.cache)
                                  : self_attention(context, qkv, settings);
  return output_.forward(context, mixed, &residual,
                         {hidden_dropout_, site_key(context.seed, output_site_),
                          shard_.residual_rows(context.rows, residual.tensor.dim(0))});
}

}  // namespace piton
