// Which ranks of the world share a host, and what goes between hosts.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace piton {

// Of a group whose members are on several hosts, as many on each, those of a host one after the
// other: member m is number m % per_host on host m / per_host.
struct HostBlocks {
  int hosts = 0;
  int per_host = 0;
};

// For each rank of the world the lowest rank of its host. `machine_of`: that of its machine.
// `ranks_per_host`: so many ranks of a machine, in order, are a host; 0: all of them.
std::vector<int> hosts_of(const std::vector<int>& machine_of, int ranks_per_host);

class HostMap {
 public:
  HostMap() = default;
  // `host_of`: for each rank of the world a number that ranks of one host share (hosts_of()).
  explicit HostMap(std::vector<int> host_of) : host_of_(std::move(host_of)) {}

  bool same_host(int world_rank, int other) const {
    return host_of_[static_cast<std::size_t>(world_rank)] ==
           host_of_[static_cast<std::size_t>(other)];
  }

  // Nullopt if the members are not in such blocks of at least two.
  std::optional<HostBlocks> blocks(const std::vector<int>& world_ranks) const;

 private:
  std::vector<int> host_of_;
};

// Counts the bytes that this rank sends to members of a group that are on other hosts. Used by the
// communication thread.
class HostTraffic {
 public:
  // `bytes` must outlive it. `elsewhere`: for each member, whether it is on another host.
  HostTraffic(std::atomic<std::int64_t>& bytes, std::vector<bool> elsewhere)
      : bytes_(&bytes), elsewhere_(std::move(elsewhere)) {}
  void sent(std::int64_t bytes, int member) {
    if (elsewhere_[static_cast<std::size_t>(member)]) {
      bytes_->fetch_add(bytes, std::memory_order_relaxed);
    }
  }

 private:
  std::atomic<std::int64_t>* bytes_;
  std::vector<bool> elsewhere_;
};

}  // namespace piton
