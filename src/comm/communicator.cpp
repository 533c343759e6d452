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

std::unique_ptr<Communicator> make_group_of_all(World& world, const std::string& name) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.make_group(ranks, name);
}

}  // namespace piton
