#include "comm/mpi/host_map.h"

#include <algorithm>

namespace piton {

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
