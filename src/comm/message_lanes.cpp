#include "comm/message_lanes.h"

namespace piton {

void open_lanes(Communicator& group, const std::vector<MessageLane>& lanes, int count) {
  if (auto* laned = dynamic_cast<LanedMessages*>(&group)) laned->open_lanes(lanes, count);
}

void connect(Communicator& group, const std::vector<int>& members) {
  if (members.empty()) return;
  if (auto* laned = dynamic_cast<LanedMessages*>(&group)) laned->connect(members);
}

void connect_all(Communicator& group) {
  std::vector<int> others;
  for (int member = 0; member < group.size(); ++member) {
    if (member != group.rank()) others.push_back(member);
  }
  connect(group, others);
}

}  // namespace piton
