// Rows cut into ranges that give the same bits as the whole: at multiples of Kernels::row_tile().
#pragma once

#include <cstdint>
#include <vector>

namespace piton {

struct RowRange {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

// `rows` in at most `parts` ranges, cut at multiples of `tile`, as equal as tiles allow. At least
// one range; it is empty where there are no rows.
std::vector<RowRange> cut_rows(std::int64_t rows, std::int64_t parts, std::int64_t tile);

}  // namespace piton
