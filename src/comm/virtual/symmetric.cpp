#include "comm/virtual/symmetric.h"

#include <algorithm>
#include <cstring>

namespace piton {

VirtualSymmetricMemory::VirtualSymmetricMemory(const VirtualGroup& group, std::int64_t bytes)
    : group_(group) {
  if (group.clock != nullptr && group.clock->real()) {
    memory_ = host_tensor(DType::kU8, {bytes});
    return;
  }
  memory_ = Tensor(std::make_shared<Storage>(nullptr, bytes, Place{DeviceKind::kMeta, 0}), 0,
                   DType::kU8, {bytes});
}

void VirtualSymmetricMemory::signal(int member, int slot, std::int64_t bytes) {
  if (group_.clock == nullptr) return;
  const int further = (member - group_.rank + group_.size) % group_.size;
  const int sender = (group_.rank - further + group_.size) % group_.size;
  // A counter is one of several for each member, which are as far apart as the group has members.
  const int arrives = slot - group_.rank + sender;
  arrivals_[arrives].push_back(
      group_.clock->transfer(group_.link, static_cast<double>(bytes), 1, group_.clock->now()));
}

void VirtualSymmetricMemory::wait(int slot, std::uint64_t value) {
  if (group_.clock == nullptr) return;
  const std::vector<LinkClock::Time>& arrivals = arrivals_[slot];
  // Members may have one tile more or less than this rank.
  if (arrivals.empty()) return;
  group_.clock->wait_until(arrivals[std::min<std::size_t>(value, arrivals.size()) - 1]);
}

void VirtualSymmetricMemory::sum(const Tensor& out, std::int64_t begin) {
  PITON_ASSERT(begin >= 0 && begin + out.bytes() <= memory_.bytes(), "{} from byte {} of {}",
               to_string(out), begin, memory_.bytes());
  if (group_.clock == nullptr || !group_.clock->real()) return;
  std::memmove(out.raw(), memory_.raw() + begin, static_cast<std::size_t>(out.bytes()));
}

}  // namespace piton
