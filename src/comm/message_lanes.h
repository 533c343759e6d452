// Lanes of messages, for communicators that match sends and receives by their order alone (NCCL).
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

// A communicator whose messages need lanes.
class LanedMessages {
 public:
  virtual ~LanedMessages() = default;
  virtual void open_lanes(const std::vector<MessageLane>& lanes, int count) = 0;
};

// Announces all messages of `group`, with numbers of lanes below `count`. Collective over the
// group, before messages are pending; repeated calls are the same on all members. Does nothing for
// communicators that match messages by their tags.
void open_lanes(Communicator& group, const std::vector<MessageLane>& lanes, int count);

}  // namespace piton
