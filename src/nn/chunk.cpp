#include "nn/chunk.h"

#include <algorithm>

namespace piton {

std::vector<int> ChunkPlace::stages_of_ends() const {
  const auto [low, high] = std::minmax(stage_of_chunk.front(), stage_of_chunk.back());
  if (low == high) return {low};
  return {low, high};
}

}  // namespace piton
