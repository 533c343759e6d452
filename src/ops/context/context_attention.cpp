#include "ops/context/context_attention.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "comm/message_lanes.h"
#include "ops/computed_again.h"
#include "ops/context/gathered_rows.h"
#include "ops/context/heads_exchange.h"
#include "ops/row_ranges.h"

namespace piton {
namespace {

// Slices where nobody says how many. A message between hosts takes 0.1 ms and less to begin, which
// is short next to 1 MiB at 1 GB/s; of four slices a quarter of the time is not hidden.
constexpr std::int64_t kSliceBytes = std::int64_t{1} << 20;
constexpr std::int64_t kMostSlices = 4;

// Of `groups` heads of keys on this rank. `rows`: what the rank has of what travels.
std::vector<RowRange> slices_of(const ContextGroup& group, std::int64_t groups,
                                const std::vector<Value>& rows) {
  if (group.slices > 0) return cut_rows(groups, group.slices, 1);
  std::int64_t bytes = 0;
  for (const Value& one : rows) bytes += one.tensor.bytes();
  return cut_rows(groups, std::clamp<std::int64_t>(bytes / kSliceBytes, 1, kMostSlices), 1);
}

// The settings of some of the heads.
AttentionSettings of_heads(AttentionSettings settings, const RowRange& heads,
                           bool last_in_backward) {
  settings.head_begin += heads.begin;
  settings.sinks.begin += heads.begin;
  settings.sinks.completes_gradient = last_in_backward;
  if (settings.slopes.defined())
    settings.slopes = settings.slopes.slice(0, heads.begin, heads.size);
  return settings;
}

// The queries of some heads, attended to one slice after another, and their results side by side.
// Both are recorded around the slices: the node of split_queries() runs after all slices, when the
// gradient of the queries is complete.
struct SlicedQueries {
  std::int64_t id = -1;
  Shape shape;  // [b, sq, a, d], of the result too
  Tensor gradient;
  std::vector<Value> outs;  // [b, sq, heads of a slice, d], parts of one tensor
};

std::shared_ptr<SlicedQueries> split_queries(Context& context, const Value& q) {
  auto sliced = std::make_shared<SlicedQueries>();
  sliced->id = q.id;
  sliced->shape = q.tensor.shape();
  if (context.tape != nullptr) {
    context.tape->record([sliced](Backward& backward) {
      if (sliced->gradient.defined()) backward.give(sliced->id, std::move(sliced->gradient));
    });
  }
  return sliced;
}

Value queries_of(Context& context, const Value& q, const RowRange& heads,
                 const std::shared_ptr<SlicedQueries>& sliced) {
  const Tensor some = q.tensor.slice(2, heads.begin, heads.size);
  if (context.tape == nullptr) return {some};
  return context.tape->part(some, [sliced, heads](const Context&) {
    return sliced->gradient.slice(2, heads.begin, heads.size);
  });
}

// The results of all slices are in `joint` [b * sq, a * d].
Value joined_heads(Context& context, const Tensor& joint, bool recompute,
                   const std::vector<RowRange>& heads,
                   const std::shared_ptr<SlicedQueries>& sliced) {
  const std::vector<Value> outs = std::exchange(sliced->outs, {});
  if (context.tape == nullptr) return {joint};
  Tape& tape = *context.tape;
  if (recompute) {
    std::vector<Kept> kept;
    for (const Value& one : outs) kept.push_back(tape.keep(one.tensor));
    tape.provide(
        joint,
        computed_again([again = context.with_tape(nullptr), kept, heads, dtype = joint.dtype(),
                        shape = joint.shape(), whole = sliced->shape] {
          const Tensor rows = again.activation(dtype, shape);
          // The last slice is needed next.
          for (std::size_t i = kept.size(); i-- > 0;)
            copy(again, rows.reshape(whole).slice(2, heads[i].begin, heads[i].size), kept[i].get());
          return rows;
        }));
  }
  Value result = tape.output(joint);
  std::vector<std::int64_t> ids;
  for (const Value& one : outs) ids.push_back(one.id);
  tape.record([id = result.id, ids, heads, sliced, dtype = joint.dtype()](Backward& backward) {
    const Tensor dout = backward.take(id);
    if (!dout.defined()) return;
    sliced->gradient = backward.place(sliced->id, dtype, sliced->shape);
    for (std::size_t i = 0; i < ids.size(); ++i)
      backward.give(ids[i], dout.reshape(sliced->shape).slice(2, heads[i].begin, heads[i].size));
  });
  return result;
}

// Keys and values of all ranks [b, s, g, d], in slices of the heads.
Value attend_to_gathered(Context& context, const AttentionRows& parts, const ContextPlaces& places,
                         AttentionSettings settings, const ContextGroup& group) {
  settings.block_rows = 0;  // for queries from position 0 on
  const std::int64_t groups = parts.k.tensor.dim(2);
  const std::vector<RowRange> slices = slices_of(group, groups, {parts.k, parts.v});
  GatheredRows keys({parts.k, parts.v}, *group.keys);
  keys.start(context, slices[0]);
  if (slices.size() == 1) {
    const std::vector<Value> whole = keys.next(context);
    return attend(context, {parts.q, whole[0], whole[1]}, places.rows, settings);
  }
  const Shape& shape = parts.q.tensor.shape();
  const Tensor joint =
      context.activation(parts.q.tensor.dtype(), {shape[0] * shape[1], shape[2] * shape[3]});
  const auto sliced = split_queries(context, parts.q);
  std::vector<RowRange> heads;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (i + 1 < slices.size()) keys.start(context, slices[i + 1]);
    const std::int64_t of_group = shape[2] / groups;
    heads.push_back({slices[i].begin * of_group, slices[i].size * of_group});
    const Value q = queries_of(context, parts.q, heads[i], sliced);
    const std::vector<Value> whole = keys.next(context);
    sliced->outs.push_back(attend(context, {q, whole[0], whole[1]}, places.rows,
                                  of_heads(settings, heads[i], /*last_in_backward=*/i == 0),
                                  joint.reshape(shape).slice(2, heads[i].begin, heads[i].size)));
  }
  return joined_heads(context, joint, settings.recompute, heads, sliced);
}

// Of the rows of this rank, or of those that exchanged heads.
Value attend_to_keys(Context& context, const AttentionRows& parts, const ContextPlaces& places,
                     const AttentionSettings& settings, const ContextGroup& group) {
  if (group.keys == nullptr) return attend(context, parts, places.rows, settings);
  if (!group.gathers)
    return ring_attention(context, parts, places.stretches, settings, *group.keys);
  return attend_to_gathered(context, parts, places, settings, group);
}

}  // namespace

void connect_members(const ContextGroup& group) {
  if (group.heads != nullptr) connect_all(*group.heads);
  if (group.keys == nullptr || group.gathers) return;
  const int before = before_in_ring(*group.keys), next = next_in_ring(*group.keys);
  std::vector<int> members{before};
  if (next != before) members.push_back(next);
  connect(*group.keys, members);
}

Value attend_over_ranks(Context& context, const AttentionRows& parts, const ContextPlaces& places,
                        const AttentionSettings& settings, const ContextGroup& group) {
  if (group.heads == nullptr) return attend_to_keys(context, parts, places, settings, group);
  Communicator& ranks = *group.heads;
  const Shape rows = parts.q.tensor.shape();
  const std::int64_t heads = rows[2] / ranks.size();  // of queries, of this rank after the exchange
  const std::int64_t groups = parts.k.tensor.dim(2) / ranks.size();
  const std::vector<RowRange> slices = slices_of(group, groups, {parts.q, parts.k, parts.v});
  const auto part = [&](std::size_t i) {
    return HeadPart{.begin = slices[i].begin, .size = slices[i].size, .of = groups};
  };
  ToSequences there({parts.q, parts.k, parts.v}, ranks);
  ToRows back(ranks);
  there.start(context, part(0));
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (i + 1 < slices.size()) there.start(context, part(i + 1));
    const std::vector<Value> whole = there.next(context);
    const RowRange own{ranks.rank() * heads + part(i).first(heads), part(i).count(heads)};
    const Value mixed = attend_to_keys(context, {whole[0], whole[1], whole[2]}, places,
                                       of_heads(settings, own, /*last_in_backward=*/i == 0), group);
    const Shape shape{rows[0], rows[1] * ranks.size(), own.size, rows[3]};
    back.start(context, {mixed.tensor.reshape(shape), mixed.id}, part(i));
  }
  const Value own = back.all(context);
  return {own.tensor.reshape({rows[0] * rows[1], rows[2] * rows[3]}), own.id};
}

}  // namespace piton
