#include "ops/context/context_attention.h"

#include "comm/message_lanes.h"
#include "ops/context/gathered_rows.h"
#include "ops/context/heads_exchange.h"

namespace piton {
namespace {

// Of the rows of this rank, or of those that exchanged heads.
Value attend_to_keys(Context& context, const AttentionRows& parts, const ContextPlaces& places,
                     AttentionSettings settings, const ContextGroup& group) {
  if (group.keys == nullptr) return attend(context, parts, places.rows, settings);
  if (!group.gathers)
    return ring_attention(context, parts, places.stretches, settings, *group.keys);
  settings.block_rows = 0;  // for queries from position 0 on
  const std::vector<Value> keys = gathered_rows(context, {parts.k, parts.v}, *group.keys);
  return attend(context, {parts.q, keys[0], keys[1]}, places.rows, settings);
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
  const std::int64_t heads = rows[2] / ranks.size();
  const std::int64_t first = ranks.rank() * heads;
  AttentionSettings of_part = settings;
  of_part.head_begin += first;
  of_part.sinks.begin += first;
  if (of_part.slopes.defined()) of_part.slopes = of_part.slopes.slice(0, first, heads);
  const std::vector<Value> whole = whole_sequences(context, {parts.q, parts.k, parts.v}, ranks);
  const Value mixed =
      attend_to_keys(context, {whole[0], whole[1], whole[2]}, places, of_part, group);
  const Shape shape{rows[0], rows[1] * ranks.size(), heads, rows[3]};
  const Value own = own_rows(context, {mixed.tensor.reshape(shape), mixed.id}, ranks);
  return {own.tensor.reshape({rows[0] * rows[1], rows[2] * rows[3]}), own.id};
}

}  // namespace piton
