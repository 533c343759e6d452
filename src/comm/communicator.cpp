#include "comm/communicator.h"

#include <numeric>
#include <vector>

namespace piton {

std::unique_ptr<Communicator> make_group_of_all(World& world, const std::string& name) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.make_group(ranks, name);
}

}  // namespace piton
