#include "ops/attention.h"

#include <memory>
#include <utility>

namespace piton {
namespace {

AttentionMask mask_of(const AttentionPlaces& places, const AttentionSettings& settings,
                      const Tensor& bias) {
  return {.causal = settings.causal,
          .window_before = settings.window_before,
          .window_after = settings.window_after,
          .query_positions = places.query_positions,
          .key_positions = places.key_positions,
          .query_reach = places.query_reach,
          .key_lengths = places.key_lengths,
          .query_segments = places.query_segments,
          .key_segments = places.key_segments,
          .slopes = settings.slopes,
          .bias = bias,
          .bias_origin = settings.bias.origin};
}

// Recomputes the attention forward when the backward of attention, or of the op after it, first
// needs `out` or `lse`. The handles of both tensors share one recomputation.
class AttentionAgain {
 public:
  struct Inputs {
    Kept q, k, v;
    AttentionSinks sinks;
  };
  // `call` holds only the tensors of the mask; q, k and v are handles.
  AttentionAgain(const Context& context, AttentionForward call, Inputs inputs)
      : context_(context.with_tape(nullptr)), call_(std::move(call)), inputs_(std::move(inputs)) {}

  const AttentionForward& result() {
    if (call_.out.defined()) return call_;
    call_.q = inputs_.q.get();
    call_.k = inputs_.k.get();
    call_.v = inputs_.v.get();
    const DType dtype = call_.q.dtype();
    call_.out = context_.activation(dtype, call_.q.shape());
    call_.lse =
        context_.activation(sum_dtype(dtype), {call_.q.dim(0), call_.q.dim(2), call_.q.dim(1)});
    context_.kernels.run(call_, context_.stream);
    add_sinks(context_, inputs_.sinks, call_.out, call_.lse);
    call_.q = call_.k = call_.v = {};
    inputs_ = {};
    return call_;
  }

 private:
  Context context_;
  AttentionForward call_;
  Inputs inputs_;
};

// The handle of one recomputed tensor, `out` or `lse`, reshaped to `shape`.
class TensorAgain final : public KeptTensor {
 public:
  TensorAgain(std::shared_ptr<AttentionAgain> attention, bool is_lse, const Shape& shape)
      : attention_(std::move(attention)), is_lse_(is_lse), shape_(shape) {}
  Tensor get() override {
    const AttentionForward& result = attention_->result();
    return (is_lse_ ? result.lse : result.out).reshape(shape_);
  }

 private:
  std::shared_ptr<AttentionAgain> attention_;
  bool is_lse_;
  Shape shape_;
};

// The handles of call.out [b, sq, a/t, d] and call.lse [b, a/t, sq]. `rows` is call.out in the
// shape that the next op will keep.
std::pair<Kept, Kept> kept_results(Context& context, const AttentionForward& call,
                                   const Tensor& rows, const AttentionSettings& settings) {
  Tape& tape = *context.tape;
  if (!settings.recompute) return {tape.keep(call.out), tape.keep(call.lse)};
  AttentionForward bare = call;
  bare.out = bare.lse = bare.q = bare.k = bare.v = {};
  const auto again =
      std::make_shared<AttentionAgain>(context, std::move(bare),
                                       AttentionAgain::Inputs{tape.keep(call.q), tape.keep(call.k),
                                                              tape.keep(call.v), settings.sinks});
  const auto of_rows = std::make_shared<TensorAgain>(again, false, rows.shape());
  tape.provide(rows, of_rows);
  return {Kept(std::make_shared<TensorAgain>(again, false, call.out.shape())),
          Kept(std::make_shared<TensorAgain>(again, true, call.lse.shape()))};
}

struct KeptAttention {
  Kept out;
  Kept lse;
  Kept q;
  Kept k;
  Kept v;
  Kept query_positions;
  Kept key_positions;
  Kept query_reach;
  Kept key_lengths;
  Kept query_segments;
  Kept key_segments;
  Kept bias;

  AttentionPlaces places() const {
    return {.query_positions = query_positions.get(),
            .key_positions = key_positions.get(),
            .query_reach = query_reach.get(),
            .key_lengths = key_lengths.get(),
            .query_segments = query_segments.get(),
            .key_segments = key_segments.get()};
  }
};

}  // namespace

void add_sinks(const Context& context, const AttentionSinks& sinks, const Tensor& out,
               const Tensor& lse) {
  if (!sinks.given) return;
  WeightUse use;
  AttentionSink call{.out = out, .lse = lse};
  if (sinks.values != nullptr) {
    use = context.weights.acquire(*sinks.values, WeightForm::kRows, context.stream);
    call.sinks = use.rows().slice(0, sinks.begin, out.dim(2));
  }
  context.kernels.run(call, context.stream);
}

void add_sink_gradient(const Context& context, const AttentionSinks& sinks,
                       const std::vector<SinkRows>& parts) {
  if (!sinks.given || sinks.values == nullptr) return;
  Parameter& values = *sinks.values;
  const Tensor sums = context.weights.gradient(values, context.stream);
  if (!sums.defined()) return;
  {
    const WeightUse use = context.weights.acquire(values, WeightForm::kRows, context.stream);
    for (const auto& [dout, out, lse] : parts) {
      const auto of_heads = [&, heads = out.dim(2)](const Tensor& all) {
        return all.slice(0, sinks.begin, heads);
      };
      context.kernels.run(AttentionSinkBackward{.dsinks = of_heads(sums),
                                                .dout = dout,
                                                .out = out,
                                                .lse = lse,
                                                .sinks = of_heads(use.rows())},
                          context.stream);
    }
  }
  if (sinks.completes_gradient) context.weights.contribute(values, context.stream);
}

Value attend(Context& context, const AttentionRows& parts, const AttentionPlaces& places,
             const AttentionSettings& settings, const Tensor& out) {
  const auto& [q, k, v] = parts;
  const DType dtype = q.tensor.dtype();
  const std::int64_t b = q.tensor.dim(0);
  const std::int64_t sq = q.tensor.dim(1);
  const std::int64_t a = q.tensor.dim(2);
  const std::int64_t d = q.tensor.dim(3);
  const Tensor rows = out.defined() ? out : context.activation(dtype, {b * sq, a * d});
  AttentionForward call{.out = rows.reshape({b, sq, a, d}),
                        .lse = context.activation(sum_dtype(dtype), {b, a, sq}),
                        .q = q.tensor,
                        .k = k.tensor,
                        .v = v.tensor,
                        .mask = mask_of(places, settings, settings.bias.values.tensor),
                        .scale = settings.scale,
                        .dropout = settings.dropout,
                        .head_begin = settings.head_begin,
                        .block_rows = settings.block_rows,
                        .soft_cap = settings.soft_cap};
  if (!context.training) call.dropout.probability = 0;
  context.kernels.run(call, context.stream);
  add_sinks(context, settings.sinks, call.out, call.lse);
  if (context.tape == nullptr) return {rows};
  Value result = context.tape->output(rows);
  Tape& tape = *context.tape;
  const auto keep = [&](const Tensor& tensor) { return tape.keep(tensor); };
  const auto [kept_out, kept_lse] = kept_results(context, call, rows, settings);
  const KeptAttention kept{.out = kept_out,
                           .lse = kept_lse,
                           .q = keep(call.q),
                           .k = keep(call.k),
                           .v = keep(call.v),
                           .query_positions = keep(places.query_positions),
                           .key_positions = keep(places.key_positions),
                           .query_reach = keep(places.query_reach),
                           .key_lengths = keep(places.key_lengths),
                           .query_segments = keep(places.query_segments),
                           .key_segments = keep(places.key_segments),
                           .bias = keep(settings.bias.values.tensor)};
  AttentionSettings plain = settings;
  plain.bias.values.tensor = {};
  tape.record([id = result.id, q_id = parts.q.id, k_id = parts.k.id, v_id = parts.v.id, kept,
               settings = std::move(plain), dropout = call.dropout](Backward& backward) {
    Context& context = backward.context();
    const Tensor dout = backward.take(id);
    if (!dout.defined()) return;
    AttentionBackward call{.out = kept.out.get(),
                           .lse = kept.lse.get(),
                           .q = kept.q.get(),
                           .k = kept.k.get(),
                           .v = kept.v.get(),
                           .mask = mask_of(kept.places(), settings, kept.bias.get()),
                           .scale = settings.scale,
                           .dropout = dropout,
                           .head_begin = settings.head_begin,
                           .block_rows = settings.block_rows,
                           .soft_cap = settings.soft_cap};
    const auto place = [&](std::int64_t part, const Tensor& like) {
      return backward.place(part, like.dtype(), like.shape());
    };
    call.dq = place(q_id, call.q);
    call.dk = place(k_id, call.k);
    call.dv = place(v_id, call.v);
    const Value& bias = settings.bias.values;
    if (bias.wants_gradient()) {
      const Tensor& values = call.mask.bias;
      call.dbias =
          backward.place(bias.id, values.dtype(), {call.q.dim(0), values.dim(0), values.dim(1)});
    }
    call.dout = dout.reshape(call.out.shape());
    context.kernels.run(call, context.stream);
    add_sink_gradient(context, settings.sinks, {{call.dout, call.out, call.lse}});
    backward.give(q_id, std::move(call.dq));
    backward.give(k_id, std::move(call.dk));
    backward.give(v_id, std::move(call.dv));
    if (call.dbias.defined()) backward.give(bias.id, std::move(call.dbias));
  });
  return result;
}

void write_to_cache(Context& context, const CacheView& cache, const Value& k, const Value& v) {
  context.kernels.run(CacheAppend{.keys = cache.keys,
                                  .values = cache.values,
                                  .k = k.tensor,
                                  .v = v.tensor,
                                  .slots = cache.rows.slots,
                                  .key_scales = cache.key_scales,
                                  .value_scales = cache.value_scales},
                      context.stream);
}

Value attend_to_cache(Context& context, const CacheView& cache, const AttentionRows& rows,
                      const AttentionSettings& settings, const RotarySettings& turn) {
  PITON_ASSERT(context.tape == nullptr, "attention to a cache goes forward only");
  if (turn.cosine.defined()) {
    context.kernels.run(CacheAppend{.keys = cache.keys,
                                    .values = cache.values,
                                    .k = rows.k.tensor,
                                    .v = rows.v.tensor,
                                    .slots = cache.rows.slots,
                                    .key_scales = cache.key_scales,
                                    .value_scales = cache.value_scales,
                                    .q = rows.q.tensor,
                                    .positions = turn.positions,
                                    .cosine = turn.cosine,
                                    .sine = turn.sine,
                                    .convention = turn.convention,
                                    .first_channel = turn.first_channel},
                        context.stream);
  } else {
    write_to_cache(context, cache, rows.k, rows.v);
  }
  return attend_to_written(context, cache, rows.q, settings);
}

Value attend_to_written(Context& context, const CacheView& cache, const Value& query,
                        const AttentionSettings& settings) {
  PITON_ASSERT(context.tape == nullptr, "attention to a cache goes forward only");
  const Tensor& q = query.tensor;
  const std::int64_t n = q.dim(0);
  const std::int64_t heads = q.dim(1);
  const Tensor out = context.activation(q.dtype(), {n, heads * q.dim(2)});
  const Tensor lse =
      settings.sinks.given ? context.workspace(sum_dtype(q.dtype()), {heads, n}) : Tensor();
  context.kernels.run(CachedAttention{.out = out.split_dim(1, q.dim(2)),
                                      .lse = lse,
                                      .q = q,
                                      .keys = cache.keys,
                                      .values = cache.values,
                                      .begins = cache.rows.begins,
                                      .lengths = cache.rows.lengths,
                                      .table = cache.rows.table,
                                      .window_before = settings.window_before,
                                      .window_after = settings.window_after,
                                      .slopes = settings.slopes,
                                      .bias = settings.bias.values.tensor,
                                      .bias_origin = settings.bias.origin,
                                      .scale = settings.scale,
                                      .soft_cap = settings.soft_cap,
                                      .key_scales = cache.key_scales,
                                      .value_scales = cache.value_scales,
                                      .pairs = cache.rows.pairs},
                      context.stream);
  if (lse.defined())
    add_sinks(context, settings.sinks, out.reshape(Shape{1, n, heads, q.dim(2)}),
              lse.reshape(Shape{1, heads, n}));
  return {out};
}

}  // namespace piton
