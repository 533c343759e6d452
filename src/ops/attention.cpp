#include "ops/attention.h"

#include <utility>

namespace piton {
namespace {

// q, k, v of a fused projection [b*s, (a + 2g) d], as strided views [b, s, heads, d].
struct HeadViews {
  Tensor q;
  Tensor k;
  Tensor v;
};

HeadViews head_views(const Tensor& qkv, const AttentionSettings& settings) {
  const std::int64_t d = settings.head_size;
  const std::int64_t sequence = qkv.dim(0) / settings.batch;
  const Tensor rows = qkv.split_dim(0, sequence);
  const auto part = [&](std::int64_t first_head, std::int64_t heads) {
    return rows.slice(2, first_head * d, heads * d).split_dim(2, d);
  };
  return {part(0, settings.heads), part(settings.heads, settings.groups),
          part(settings.heads + settings.groups, settings.groups)};
}

void rotate(Context& context, const Tensor& qkv, const AttentionSettings& settings, bool inverse) {
  if (!settings.cosine.defined()) return;
  const std::int64_t d = settings.head_size;
  const Tensor heads = qkv.slice(1, 0, (settings.heads + settings.groups) * d)
                           .split_dim(1, d)
                           .slice(2, 0, 2 * settings.cosine.dim(1));
  context.kernels.run(Rotary{.x = heads,
                             .positions = settings.positions,
                             .cosine = settings.cosine,
                             .sine = settings.sine,
                             .convention = settings.convention,
                             .inverse = inverse},
                      context.stream);
}

}  // namespace

Value self_attention(Context& context, const Value& qkv, const AttentionSettings& settings) {
  const std::int64_t rows = qkv.tensor.dim(0);
  const std::int64_t sequence = rows / settings.batch;
  rotate(context, qkv.tensor, settings, false);
  const HeadViews views = head_views(qkv.tensor, settings);
  Tensor out = context.activation(qkv.tensor.dtype(), {rows, settings.heads * settings.head_size});
  Tensor lse =
      context.activation(sum_dtype(out.dtype()), {settings.batch, settings.heads, sequence});
  AttentionForward call{.out = out.split_dim(0, sequence).split_dim(2, settings.head_size),
                        .lse = lse,
                        .q = views.q,
                        .k = views.k,
                        .v = views.v,
                        .mask = settings.mask,
                        .scale = settings.scale,
                        .dropout = settings.dropout,
                        .head_begin = settings.head_begin,
                        .block_rows = settings.block_rows};
  if (!context.training) call.dropout.probability = 0;
  context.kernels.run(call, context.stream);
  if (context.tape == nullptr) return {out};
  Value result = context.tape->output(out);
  context.tape->record([qkv, out, lse, settings, id = result.id, call](Backward& backward) {
    Context& context = backward.context();
    Tensor dout = backward.take(id);
    if (!dout.defined()) return;
    Tensor dqkv = context.activation(qkv.tensor.dtype(), qkv.tensor.shape());
    const HeadViews gradients = head_views(dqkv, settings);
    context.kernels.run(
        AttentionBackward{
            .dq = gradients.q,
            .dk = gradients.k,
            .dv = gradients.v,
            .dout =
                dout.split_dim(0, dout.dim(0) / settings.batch).split_dim(2, settings.head_size),
            .out = call.out,
            .lse = call.lse,
            .q = call.q,
            .k = call.k,
            .v = call.v,
            .mask = call.mask,
            .scale = call.scale,
            .dropout = call.dropout,
            .head_begin = call.head_begin,
            .block_rows = call.block_rows},
        context.stream);
    rotate(context, dqkv, settings, true);
    backward.give(qkv.id, std::move(dqkv));
  });
  return result;
}

Value cached_attention(Context& context, const Value& qkv, const AttentionSettings& settings,
                       const CacheView& cache) {
  PITON_ASSERT(context.tape == nullptr, "attention behind a cache goes forward only");
  const std::int64_t rows = qkv.tensor.dim(0);
  const std::int64_t sequence = rows / settings.batch;
  rotate(context, qkv.tensor, settings, false);
  const HeadViews views = head_views(qkv.tensor, settings);
  context.kernels.run(
      CacheAppend{.cache = cache.keys, .rows = views.k, .begins = cache.rows.begins},
      context.stream);
  context.kernels.run(
      CacheAppend{.cache = cache.values, .rows = views.v, .begins = cache.rows.begins},
      context.stream);
  Tensor out = context.activation(qkv.tensor.dtype(), {rows, settings.heads * settings.head_size});
  Tensor lse =
      context.workspace(sum_dtype(out.dtype()), {settings.batch, settings.heads, sequence});
  AttentionMask mask = settings.mask;
  mask.query_positions = cache.rows.positions;
  mask.key_lengths = cache.rows.lengths;
  context.kernels.run(
      AttentionForward{.out = out.split_dim(0, sequence).split_dim(2, settings.head_size),
                       .lse = lse,
                       .q = views.q,
                       .k = cache.keys.slice(1, 0, cache.rows.longest),
                       .v = cache.values.slice(1, 0, cache.rows.longest),
                       .mask = mask,
                       .scale = settings.scale,
                       .head_begin = settings.head_begin},
      context.stream);
  return {out};
}

}  // namespace piton
