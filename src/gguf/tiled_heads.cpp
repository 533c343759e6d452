#include "gguf/tiled_heads.h"

#include <algorithm>
#include <vector>

namespace piton {

void tile_columns(const TiledHeads& heads, std::span<float> row) {
  const std::vector<float> canonical(row.begin(), row.end());
  for (std::int64_t i = 0; i < std::ssize(row); i += heads.size)
    std::copy_n(canonical.begin() + i, heads.size, row.begin() + heads.stored(i));
}

void untile_columns(const TiledHeads& heads, std::span<float> row) {
  const std::vector<float> stored(row.begin(), row.end());
  for (std::int64_t i = 0; i < std::ssize(row); i += heads.size)
    std::copy_n(stored.begin() + heads.stored(i), heads.size, row.begin() + i);
}

}  // namespace piton
