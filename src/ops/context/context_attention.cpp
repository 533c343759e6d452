#include "ops/context/context_attention.h"

#include "comm/message_lanes.h"
#include "ops/context/heads_exchange.h"

namespace piton {
namespace {

// Of whole sequences and this rank's part of the heads: the ordinary op.
Value attend_to_sequences(Context& context, const AttentionRows& parts,
                          const AttentionPlaces& places, AttentionSettings settings,
                          const ContextGroup& group) {
  const Shape rows = parts.q.tensor.shape();
  const std::int64_t heads = rows[2] / group.size();
  settings.head_begin += group.rank() * heads;
  settings.sinks.begin += group.rank() * heads;
  if (settings.slopes.defined())
    settings.slopes = settings.slopes.slice(0, group.rank() * heads, heads);
  const std::vector<Value> whole = whole_sequences(context, {parts.q, parts.k, parts.v}, group);
  const Value mixed = attend(context, {whole[0], whole[1], whole[2]}, places, settings);
  const Shape shape{rows[0], rows[1] * group.size(), heads, rows[3]};
  const Value own = own_rows(context, {mixed.tensor.reshape(shape), mixed.id}, group);
  return {own.tensor.reshape({rows[0] * rows[1], rows[2] * rows[3]}), own.id};
}

}  // namespace

void connect_members(const ContextGroup& group) {
  if (group.size() == 1) return;
  if (group.exchange == ContextExchange::kHeads) return connect_all(*group.group);
  std::vector<int> members{group.before()};
  if (group.next() != group.before()) members.push_back(group.next());
  connect(*group.group, members);
}

Value attend_over_ranks(Context& context, const AttentionRows& parts, const ContextPlaces& places,
                        const AttentionSettings& settings, const ContextGroup& group) {
  if (group.exchange == ContextExchange::kRing)
    return ring_attention(context, parts, places.stretches, settings, group);
  return attend_to_sequences(context, parts,
                             {.query_segments = places.segments, .key_segments = places.segments},
                             settings, group);
}

}  // namespace piton
