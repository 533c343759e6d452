// Elements that a file has in a row, as boxes of the tensor that they belong to.
#pragma once

#include <algorithm>
#include <cstdint>

#include "megatron/megatron_files.h"

namespace piton {

// A part of a tensor: rows from `row` on, and `columns` columns from `column` on.
struct FlatTile {
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t columns = 1;
};

// Adds elements [begin, end) of the tile, counted row by row, which are at byte `offset`: whole
// rows, and the ends of others.
inline void add_flat_boxes(const RegularFile& file, std::int64_t offset, std::int64_t begin,
                           std::int64_t end, const FlatTile& tile, BoxedTensor& tensor) {
  while (begin < end) {
    const std::int64_t column = begin % tile.columns;
    const bool whole = column == 0 && end - begin >= tile.columns;
    const std::int64_t rows = whole ? (end - begin) / tile.columns : 1;
    const std::int64_t columns =
        whole ? tile.columns : std::min(tile.columns - column, end - begin);
    tensor.boxes.push_back({.file = &file,
                            .offset = offset,
                            .row = tile.row + begin / tile.columns,
                            .rows = rows,
                            .column = tile.column + column,
                            .columns = columns,
                            .stride = columns});
    offset += rows * columns * size_bytes(tensor.dtype);
    begin += rows * columns;
  }
}

}  // namespace piton
