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
  // `call` holds only the tensors of the mask; q, k and v are handles.
  AttentionAgain(const Context& context, AttentionForward call, Kept q, Kept k, Kept v)
      : context_(context.with_tape(nullptr)),
        call_(std::move(call)),
        q_(std::move(q)),
        k_(std::move(k)),
        v_(std::move(v)) {}

  const AttentionForward& result() {
    if (call_.out.defined()) return call_;
    call_.q = q_.get();
    call_.k = k_.get();
    call_.v = v_.get();
    const DType dtype = call_.q.dtype();
    call_.out = context_.activation(dtype, call_.q.shape());
    call_.lse =
        context_.activation(sum_dtype(dtype), {call_.q.dim(0), call_.q.dim(2), call_.q.dim(1)});
    context_.kernels.run(call_, context_.stream);
    call_.q = call_.k = call_.v = {};
    q_ = k_ = v_ = {};
    return call_;
  }

 private:
  Context context_;
  AttentionForward call_;
  Kept q_, k_, v_;
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

// The handles of call.out [b, sq, a/t, d] and call.lse [b, a/t, sq]. `rows` [b*sq, a/t * d] is
// call.out in the shape that the next op will keep.
std::pair<Kept, Kept> kept_results(Context& context, const AttentionForward& call,
                                   const Tensor& rows, bool recompute) {
  Tape& tape = *context.tape;
  if (!recompute) return {tape.keep(call.out), tape.keep(call.lse)};
  AttentionForward bare = call;
  bare.out = bare.lse = bare.q = bare.k = bare.v = {};
  const auto again = std::make_shared<AttentionAgain>(context, std::move(bare), tape.keep(call.q),
                                                      tape.keep(call.k), tape.keep(call.v));
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

Value attend(Context& context, const AttentionRows& parts, const AttentionPlaces& places,
             const AttentionSettings& settings) {
  const auto& [q, k, v] = parts;
  const DType dtype = q.tensor.dtype();
  const std::int64_t b = q.tensor.dim(0);
  const std::int64_t sq = q.tensor.dim(1);
  const std::int64_t a = q.tensor.dim(2);
  const std::int64_t d = q.tensor.dim(3);
  const Tensor rows = context.activation(dtype, {b * sq, a * d});
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
  if (context.tape == nullptr) return {rows};
  Value result = context.tape->output(rows);
  Tape& tape = *context.tape;
  const auto keep = [&](const Tensor& tensor) { return tape.keep(tensor); };
  const auto [out, lse] = kept_results(context, call, rows, settings.recompute);
  const KeptAttention kept{.out = out,
                           .lse = lse,
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
    backward.give(q_id, std::move(call.dq));
    backward.give(k_id, std::move(call.dk));
    backward.give(v_id, std::move(call.dv));
    if (call.dbias.defined()) backward.give(bias.id, std::move(call.dbias));
  });
  return result;
}

Value attend_to_cache(Context& context, const CacheView& cache, const AttentionRows& rows,
                      const AttentionSettings& settings) {
  PITON_ASSERT(context.tape == nullptr, "attention to a cache goes forward only");
  const auto append = [&](const Tensor& to, const Tensor& scales, const Value& from) {
    context.kernels.run(
        CacheAppend{.cache = to, .rows = from.tensor, .slots = cache.rows.slots, .scales = scales},
        context.stream);
  };
  append(cache.keys, cache.key_scales, rows.k);
  append(cache.values, cache.value_scales, rows.v);
  return attend_to_written(context, cache, rows.q, settings);
}

Value attend_to_written(Context& context, const CacheView& cache, const Value& query,
                        const AttentionSettings& settings) {
  PITON_ASSERT(context.tape == nullptr, "attention to a cache goes forward only");
  const Tensor& q = query.tensor;
  const Tensor out = context.activation(q.dtype(), {q.dim(0), q.dim(1) * q.dim(2)});
  context.kernels.run(CachedAttention{.out = out.split_dim(1, q.dim(2)),
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
  return {out};
}

}  // namespace piton
