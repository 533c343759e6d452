// Memory shared with ranks that do not exist: that of every member is this rank's own. Without a
// clock it has no bytes, like that of a MetaDevice, and nothing is waited for.
//
// With a clock, the others are taken to do the same at the same time, each with the member that is
// as many places further on as the one to which this rank gives a signal. So the n-th signal from
// member rank - d arrives when the transfer of the n-th signal to member rank + d ends.
#pragma once

#include <map>
#include <vector>

#include "comm/communicator.h"
#include "comm/virtual/link_clock.h"

namespace piton {

struct VirtualGroup {
  int rank = 0;
  int size = 1;
  LinkClock* clock = nullptr;
  LinkClass link = LinkClass::kWithinHosts;
};

class VirtualSymmetricMemory final : public SymmetricMemory {
 public:
  VirtualSymmetricMemory(const VirtualGroup& group, std::int64_t bytes);

  Tensor mine() const override { return memory_; }
  Tensor peer(int) const override { return memory_; }
  void signal(int member, int slot, std::int64_t bytes) override;
  void wait(int slot, std::uint64_t value) override;
  void sum(const Tensor& out, std::int64_t begin) override;

 private:
  VirtualGroup group_;
  Tensor memory_;
  std::map<int, std::vector<LinkClock::Time>> arrivals_;  // by counter
};

}  // namespace piton
