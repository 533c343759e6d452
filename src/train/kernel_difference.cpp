#include "train/kernel_difference.h"

#include <vector>

namespace piton {

std::string kernel_difference(const Kernels& kernels, Communicator& everyone) {
  if (everyone.size() == 1) return "";
  const std::vector<std::string> names = everyone.gather_bytes(kernels.name());
  for (std::size_t rank = 1; rank < names.size(); ++rank) {
    if (names[rank] == names[0]) continue;
    return fmt::format(
        "kernels differ: rank {} has {}, rank 0 has {}; bits follow from the layout of the ranks",
        rank, names[rank], names[0]);
  }
  return "";
}

}  // namespace piton
