#include "nn/chunk.h"

#include <fmt/format.h>

#include <algorithm>

namespace piton {

std::string later_loss_sum(std::int64_t layer) { return fmt::format("mtp_{}_loss", layer + 1); }

std::vector<int> ChunkPlace::stages_of_ends() const {
  const auto [low, high] = std::minmax(stage_of_chunk.front(), stage_of_chunk.back());
  if (low == high) return {low};
  return {low, high};
}

}  // namespace piton
