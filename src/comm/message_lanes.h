// What communicators that match sends and receives by their order alone (NCCL) have to know before
// the messages: lanes of single messages, and the members of exchanges.
#pragma once

#include <compare>
#include <vector>

#include "comm/communicator.h"

namespace piton {

// The messages from member `from` to member `to` whose tag, modulo the number of lanes of the
// group, is `number`. They are received in the order of sending.
struct MessageLane {
  int from = 0;
  int to = 0;
  int number = 0;
  auto operator<=>(const MessageLane&) const = default;
};

// A communicator that has to know, or one around such a communicator.
class LanedMessages {
 public:
  virtual ~LanedMessages() = default;
  virtual void open_lanes(const std::vector<MessageLane>& lanes, int count) = 0;
  virtual void connect(const std::vector<int>& members) = 0;
};

// Announces all messages of `group`, with numbers of lanes below `count`. Collective over the
// group, before messages are pending; repeated calls are the same on all members. Does nothing for
// communicators that match messages by their tags.
void open_lanes(Communicator& group, const std::vector<MessageLane>& lanes, int count);

// Announces exchanges (Communicator::exchange, all_to_all) with `members`, each of which announces
// them with this one at the same time, before messages are pending: NCCL connects two members in
// their first exchange, which allocates memory and blocks the hosts of both. Does nothing for
// communicators that need no connections.
void connect(Communicator& group, const std::vector<int>& members);
// With all other members.
void connect_all(Communicator& group);

}  // namespace piton
