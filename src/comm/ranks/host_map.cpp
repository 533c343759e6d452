#include "comm/ranks/host_map.h"

#include <algorithm>
#include <map>

namespace piton {

std::vector<int> hosts_of(const std::vector<int>& machine_of, int ranks_per_host) {
  std::vector<int> result;
  std::map<int, std::vector<int>> machines;  // ranks, in order
  for (int rank = 0; rank < std::ssize(machine_of); ++rank) {
    std::vector<int>& machine = machines[machine_of[static_cast<std::size_t>(rank)]];
    const auto number = static_cast<int>(machine.size());
    machine.push_back(rank);
    const int first = ranks_per_host > 0 ? number / ranks_per_host * ranks_per_host : 0;
    result.push_back(machine[static_cast<std::size_t>(first)]);
  }
  return result;
}

std::optional<HostBlocks> HostMap::blocks(const std::vector<int>& world_ranks) const {
  const int members = static_cast<int>(world_ranks.size());
  int per_host = 1;
  while (per_host < members && same_host(world_ranks[0], world_ranks[per_host])) ++per_host;
  if (per_host < 2 || per_host == members || members % per_host != 0) return std::nullopt;
  std::vector<int> firsts;
  for (int m = 0; m < members; ++m) {
    const int first = world_ranks[m / per_host * per_host];
    if (!same_host(first, world_ranks[m])) return std::nullopt;
    if (m % per_host != 0) continue;
    const auto met = [&](int other) { return same_host(first, other); };
    if (std::ranges::any_of(firsts, met)) return std::nullopt;
    firsts.push_back(first);
  }
  return HostBlocks{.hosts = members / per_host, .per_host = per_host};
}

}  // namespace piton
