// Cuts rows into ranges at multiples of Kernels::row_tile(), so that products of the ranges have
// the same bits as the product of all rows.
#pragma once

#include <cstdint>
#include <vector>

namespace piton {

struct RowRange {
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

// Cuts `rows` rows into at most `parts` ranges, at multiples of `tile`, with sizes as equal as
// tiles allow. Returns at least one range, which is empty if rows is 0.
std::vector<RowRange> cut_rows(std::int64_t rows, std::int64_t parts, std::int64_t tile);

}  // namespace piton
