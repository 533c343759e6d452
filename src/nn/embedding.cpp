#include "nn/embedding.h"

#include <algorithm>
#include <utility>

#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/scale.h"

namespace piton {

Embedding::Embedding(ParameterList& parameters, const Shard& shard, Parameter& tokens,
                     const Vocabulary& vocabulary, const EmbeddingShape& shape)
    : shard_(shard),
      vocabulary_(vocabulary),
      tokens_(&tokens),
      scale_(shape.scale),
      scales_noise_(shape.scales_noise),
      norm_of_sum_(shape.norm_of_sum),
      stream_(shape.stream),
      hidden_dropout_(shape.hidden_dropout),
      dropout_site_(shape.dropout_site) {
  tokens_->contributions += 1;
  if (shape.norm) norm_.emplace(parameters, shard, "embedding.norm", *shape.norm);
  const auto table = [&](const char* name, std::int64_t rows) {
    Parameter made = replicated_parameter(shard, name, rows, shape.hidden, shape.positions);
    tie_over_stages(made, shape.stages);
    Parameter* added = &parameters.find_or_add(std::move(made));
    added->is_table = true;
    added->contributions += 1;
    return added;
  };
  if (shape.max_positions > 0) positions_ = table("embedding.position.weight", shape.max_positions);
  if (shape.token_types > 0) types_ = table("embedding.type.weight", shape.token_types);
}

// Noise is added in place: no node of the tape keeps these rows, and its gradient is none.
Value Embedding::noisy_tokens(Context& context, const ModelInput& input) const {
  Value x = token_embedding(context, input.tokens,
                            {.table = *tokens_,
                             .vocabulary_begin = vocabulary_.begin(shard_),
                             .group = *shard_.group,
                             .sequence_parallel = shard_.strategy.sequence_parallel});
  const auto add_noise = [&] {
    const std::int64_t rows = x.tensor.dim(0);
    const std::int64_t first = shard_.splits_sequence() ? shard_.rank() * rows : 0;
    context.kernels.run(AddNoise{.y = x.tensor,
                                 .bounds = input.noise.slice(0, first, rows),
                                 .key = site_key(context.seed, "embedding.noise"),
                                 .rows = shard_.residual_rows(context.rows, rows)},
                        context.stream);
  };
  const bool noisy = context.training && input.noise.defined();
  if (noisy && scales_noise_) add_noise();
  if (scale_ != 1) x = scaled(context, x, scale_);
  if (noisy && !scales_noise_) add_noise();
  return x;
}

Value Embedding::forward(Context& context, const ModelInput& input) const {
  Value x = noisy_tokens(context, input);
  if (norm_ && !norm_of_sum_) x = norm_->forward(context, x);
  const std::int64_t rows = x.tensor.dim(0);
  const std::int64_t first = shard_.splits_sequence() ? shard_.rank() * rows : 0;
  if (positions_ != nullptr)
    x = add_position_embedding(context, x, input.positions.slice(0, first, rows), *positions_);
  if (types_ != nullptr)
    x = add_position_embedding(context, x, input.encoder.types.slice(0, first, rows), *types_);
  if (norm_ && norm_of_sum_) x = norm_->forward(context, x);
  if (stream_ && x.tensor.dtype() != *stream_) x = converted(context, x, *stream_);
  if (hidden_dropout_ == 0 || !context.training) return x;
  return dropout_add(context, x, nullptr, nullptr,
                     {hidden_dropout_, site_key(context.seed, dropout_site_),
                      shard_.residual_rows(context.rows, rows)});
}

Head::Head(const Shard& shard, Parameter& table, const Vocabulary& vocabulary,
           const HeadShape& shape)
    : shard_(shard),
      vocabulary_(vocabulary),
      table_(&table),
      bias_(shape.bias),
      same_rows_(shape.same_rows),
      divisor_(shape.divisor),
      soft_cap_(shape.soft_cap),
      normalized_(shape.normalized ? std::make_shared<NormalizedRowsCache>() : nullptr) {
  table_->contributions += 1;
  PITON_ASSERT(bias_ == nullptr || !shape.normalized, "a normalized head with a bias");
  if (bias_ != nullptr) bias_->contributions += 1;
}

Tensor whole_rows(Context& context, const Shard& shard, const Tensor& x, const Tensor& rows) {
  Tensor whole = x;
  if (shard.splits_sequence()) {
    whole = context.activation(x.dtype(), {x.dim(0) * shard.size(), x.dim(1)});
    const Event ready = shard.group->all_gather(whole, x, context.stream);
    context.arena.hold(whole, ready.fence());
    context.arena.hold(x, ready.fence());
    context.await(ready);
  }
  return rows.defined() ? chosen_rows(context, whole, rows) : whole;
}

Tensor chosen_rows(const Context& context, const Tensor& x, const Tensor& rows) {
  Tensor chosen = context.activation(x.dtype(), {rows.dim(0), x.dim(1)});
  context.kernels.run(EmbeddingForward{.y = chosen, .table = x, .ids = rows}, context.stream);
  return chosen;
}

Tensor Head::logits(Context& context, const Tensor& rows) const {
  Context plain = context.with_tape(nullptr);
  const Tensor x = divisor_ == 1 ? rows : scaled(plain, {rows}, 1 / divisor_).tensor;
  const DType sums = sum_dtype(shard_.dtype);
  Tensor y;
  if (normalized_ != nullptr) {
    y = context.activation(sums, {x.dim(0), table_->shape[0]});
    context.kernels.run(LinearForward{.y = y, .x = x, .weight = normalized_->view(plain, *table_)},
                        context.stream);
  } else {
    y = column_linear(plain, {x}, {*table_, *shard_.group, {}}, {.bias = bias_, .output = sums})
            .tensor;
  }
  if (soft_cap_ > 0)
    context.kernels.run(SoftCapForward{.y = y, .x = y, .cap = soft_cap_}, context.stream);
  return y;
}

LossOutput Head::loss(Context& context, const Value& x, const LossInputs& inputs) const {
  LossInputs local = inputs;
  local.vocabulary_begin = vocabulary_.begin(shard_);
  local.valid = vocabulary_.valid(shard_);
  local.bias = bias_;
  local.normalized = normalized_ != nullptr;
  local.soft_cap = soft_cap_;
  const Value divided = divisor_ == 1 ? x : scaled(context, x, 1 / divisor_);
  return head_loss(context, divided, *table_, local,
                   {.group = *shard_.group,
                    .sequence_parallel = shard_.strategy.sequence_parallel && !same_rows_});
}

}  // namespace piton
