#include "nn/encoder_heads.h"

#include "ops/activation.h"
#include "ops/dropout.h"
#include "ops/split.h"

namespace piton {
namespace {

// All tensor ranks compute the same rows, so their gradients are the same, and are not summed.
Shard of_same_rows(Shard shard) {
  shard.strategy.sequence_parallel = false;
  return shard;
}

// Of one row of each sample of the micro-batch.
MaskRows rows_of_texts(const Context& context) {
  MaskRows rows = context.rows;
  rows.sequence = 1;
  return rows;
}

WholeLinearShape of_rows(std::int64_t out, const EncoderHeadShape& shape) {
  return {.out = out,
          .in = shape.hidden,
          .bias = true,
          .initialization = shape.weights,
          .alone = shape.alone};
}

WholeLinearShape square(const EncoderHeadShape& shape) { return of_rows(shape.hidden, shape); }

WholeLinearShape adapted(WholeLinearShape linear, const EncoderHeadShape& shape) {
  linear.adapters = shape.adapters;
  return linear;
}

}  // namespace

WordTransform::WordTransform(ParameterList& parameters, const Shard& shard,
                             const EncoderHeadShape& shape)
    : shape_(shape),
      dense_(parameters, of_same_rows(shard), "head.dense", square(shape)),
      norm_(parameters, of_same_rows(shard), "head.norm", shape.norm) {}

Value WordTransform::forward(Context& context, const Value& x) const {
  return norm_.forward(context, dense_.forward(context, x, {}, shape_.activation));
}

Pooler::Pooler(ParameterList& parameters, const Shard& shard, const EncoderHeadShape& shape)
    : dense_(parameters, of_same_rows(shard), "pooler", adapted(square(shape), shape)) {}

Value Pooler::forward(Context& context, const Value& x) const {
  return tanh_of(context, dense_.forward(context, x, rows_of_texts(context)));
}

PairHead::PairHead(ParameterList& parameters, const Shard& shard, const EncoderHeadShape& shape)
    : shard_(shard),
      alone_(shape.alone),
      pooler_(parameters, shard, shape),
      logits_(parameters, of_same_rows(shard), "pair_head", of_rows(kLabels, shape)) {}

Value PairHead::loss(Context& context, const Value& x, const ModelInput& input) const {
  const Value first =
      chosen_rows(context, x, input.encoder.first_rows,
                  {.group = *shard_.group, .sequence_parallel = shard_.splits_sequence()});
  const Value pooled = pooler_.forward(context, first);
  const LossInputs inputs{.labels = input.encoder.pair_labels,
                          .mask = input.encoder.pair_weights,
                          .scale = input.loss.scale,
                          .valid = kLabels,
                          .bias = &logits_.bias()};
  return head_loss(context, pooled, logits_.weight(), inputs, {.group = *alone_}).sum;
}

LabelHead::LabelHead(ParameterList& parameters, const Shard& shard, const EncoderHeadShape& shape,
                     std::int64_t labels)
    : shape_(shape),
      sums_(sum_dtype(shard.dtype)),
      labels_(labels),
      pooler_(parameters, shard, shape),
      linear_(parameters, of_same_rows(shard), "label", of_rows(labels, shape)) {
  for (Parameter* parameter : {&linear_.weight(), &linear_.bias()})
    parameter->rate_group = RateGroup::kVocabulary;  // it is the head
}

Value LabelHead::dropped(Context& context, const Value& x, const char* site) const {
  if (shape_.dropout == 0 || !context.training) return x;
  return dropout_add(context, x, nullptr, nullptr,
                     {shape_.dropout, site_key(context.seed, site), rows_of_texts(context)});
}

LossOutput LabelHead::loss(Context& context, const Value& x, const LossInputs& inputs) const {
  const Value first = shape_.drops_first ? dropped(context, x, "label.first_dropout") : x;
  const Value pooled = dropped(context, pooler_.forward(context, first), "label.dropout");
  LossInputs own = inputs;
  own.valid = labels_;
  own.bias = &linear_.bias();
  return head_loss(context, pooled, linear_.weight(), own, {.group = *shape_.alone});
}

Tensor LabelHead::logits(Context& context, const Tensor& x) const {
  Context plain = context.with_tape(nullptr);
  return linear_.values(plain, pooler_.forward(plain, {x}).tensor, sums_);
}

}  // namespace piton
