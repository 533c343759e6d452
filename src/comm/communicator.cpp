#include "comm/communicator.h"

#include <numeric>
#include <vector>

namespace piton {

// Receives first, so that no send waits for them.
Exchanged Communicator::exchange(const std::vector<PeerMessage>& sends,
                                 const std::vector<PeerMessage>& receives, Stream& after) {
  Exchanged events;
  for (const PeerMessage& one : receives) {
    events.received.push_back(receive(one.data, one.member, one.tag, after));
  }
  for (const PeerMessage& one : sends) {
    events.sent.push_back(send(one.data, one.member, one.tag, after));
  }
  return events;
}

void check_rows(const Communicator& group, const Tensor& out, const Tensor& mine,
                const RowCounts& counts) {
  const int rank = group.rank();
  PITON_ASSERT(counts.members() == group.size(), "counts of {} members in a group of {}",
               counts.members(), group.size());
  for (const std::int64_t rows : counts.all()) PITON_ASSERT(rows >= 0, "{} rows", rows);
  PITON_ASSERT(out.dtype() == mine.dtype() && out.ndim() == 2 && mine.ndim() == 2 &&
                   out.dim(1) == mine.dim(1) && counts.sent(rank) <= mine.dim(0) &&
                   counts.received(rank) <= out.dim(0),
               "all-to-all of {} rows of {} and {} rows of {}", counts.sent(rank), to_string(mine),
               counts.received(rank), to_string(out));
}

TrafficCounts traffic_of_rows(const Communicator& group, const RowCounts& counts,
                              std::int64_t row_bytes) {
  const int rank = group.rank();
  const std::int64_t own = counts.at(rank, rank);
  return {.all_to_all_bytes = (counts.sent(rank) - own) * row_bytes,
          .received_bytes = (counts.received(rank) - own) * row_bytes,
          .collectives = 1};
}

std::unique_ptr<Communicator> make_group_of_all(World& world, const std::string& name) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.make_group(ranks, name);
}

}  // namespace piton
