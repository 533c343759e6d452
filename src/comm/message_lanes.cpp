#include "comm/message_lanes.h"

namespace piton {

void open_lanes(Communicator& group, const std::vector<MessageLane>& lanes, int count) {
  if (auto* laned = dynamic_cast<LanedMessages*>(&group)) laned->open_lanes(lanes, count);
}

}  // namespace piton
