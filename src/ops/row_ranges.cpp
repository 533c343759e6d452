#include "ops/row_ranges.h"

#include <algorithm>

namespace piton {

std::vector<RowRange> cut_rows(std::int64_t rows, std::int64_t parts, std::int64_t tile) {
  const std::int64_t tiles = (rows + tile - 1) / tile;
  const std::int64_t cuts = std::max<std::int64_t>(1, std::min(parts, tiles));
  std::vector<RowRange> ranges;
  for (std::int64_t cut = 0; cut < cuts; ++cut) {
    const std::int64_t begin = std::min(rows, tiles * cut / cuts * tile);
    const std::int64_t end = std::min(rows, tiles * (cut + 1) / cuts * tile);
    ranges.push_back({begin, end - begin});
  }
  return ranges;
}

}  // namespace piton
