#include "ops/attention.h"

#include <utility>

namespace piton {
namespace {

AttentionMask mask_of(const AttentionPlaces& places, const AttentionSettings& settings) {
  return {.causal = settings.causal,
          .window_before = settings.window_before,
          .window_after = settings.window_after,
          .query_positions = places.query_positions,
          .key_positions = places.key_positions,
          .key_lengths = places.key_lengths,
          .query_segments = places.query_segments,
          .key_segments = places.key_segments,
          .slopes = settings.slopes};
}

}  // namespace

Value attend(Context& context, const Value& q, const Value& k, const Value& v,
             const AttentionPlaces& places, const AttentionSettings& settings) {
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
                        .mask = mask_of(places, settings),
                        .scale = settings.scale,
                        .dropout = settings.dropout,
                        .head_begin = settings.head_begin,
                        .block_rows = settings.block_rows};
  if (!context.training) call.dropout.probability = 0;
  context.kernels.run(call, context.stream);
  if (context.tape == nullptr) return {rows};
  Value result = context.tape->output(rows);
  context.tape->record([id = result.id, q_id = q.id, k_id = k.id, v_id = v.id,
                        call = std::move(call)](Backward& backward) {
    Context& context = backward.context();
    const Tensor dout = backward.take(id);
    if (!dout.defined()) return;
    const auto place = [&](std::int64_t part, const Tensor& like) {
      return backward.place(part, like.dtype(), like.shape());
    };
    AttentionBackward back{.dq = place(q_id, call.q),
                           .dk = place(k_id, call.k),
                           .dv = place(v_id, call.v),
                           .dout = dout.reshape(call.out.shape()),
                           .out = call.out,
                           .lse = call.lse,
                           .q = call.q,
                           .k = call.k,
                           .v = call.v,
                           .mask = call.mask,
                           .scale = call.scale,
                           .dropout = call.dropout,
                           .head_begin = call.head_begin,
                           .block_rows = call.block_rows};
    context.kernels.run(back, context.stream);
    backward.give(q_id, std::move(back.dq));
    backward.give(k_id, std::move(back.dk));
    backward.give(v_id, std::move(back.dv));
  });
  return result;
}

CachedRows append_to_cache(Context& context, const CacheView& cache, const Value& k,
                           const Value& v) {
  PITON_ASSERT(context.tape == nullptr, "attention behind a cache goes forward only");
  const auto append = [&](const Tensor& rows, const Tensor& to) {
    context.kernels.run(CacheAppend{.cache = to, .rows = rows, .begins = cache.rows.begins},
                        context.stream);
    return Value{to.slice(1, 0, cache.rows.longest)};
  };
  return {append(k.tensor, cache.keys), append(v.tensor, cache.values)};
}

}  // namespace piton
