// Elements that a file has in a row, as boxes of the tensor that they belong to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "base/error.h"
#include "megatron/format/megatron_files.h"

namespace piton {

// A part of a tensor: rows from `row` on, and `columns` columns from `column` on.
struct FlatTile {
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t columns = 1;
};

// Elements [begin, end) of a tile, counted row by row, which are at byte `offset` of the file.
struct FlatRun {
  const RegularFile& file;
  std::int64_t offset = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Adds whole rows, and the ends of others.
inline void add_flat_boxes(const FlatRun& run, const FlatTile& tile, BoxedTensor& tensor) {
  auto [offset, begin, end] = std::tuple(run.offset, run.begin, run.end);
  while (begin < end) {
    const std::int64_t column = begin % tile.columns;
    const bool whole = column == 0 && end - begin >= tile.columns;
    const std::int64_t rows = whole ? (end - begin) / tile.columns : 1;
    const std::int64_t columns =
        whole ? tile.columns : std::min(tile.columns - column, end - begin);
    tensor.boxes.push_back({.file = &run.file,
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

// Adds `count` elements of the fp32 vector, from `at` on, as those of the tensor from `begin` on.
// Asserts that it has them.
inline void add_flat_elements(const FlatVector& vector, std::int64_t at, std::int64_t count,
                              std::int64_t begin, BoxedTensor& tensor) {
  const std::int64_t end = at + count;
  PITON_ASSERT(at >= 0 && end <= vector.elements(), "{} {}", end, vector.elements());
  for (const FlatPart& part : vector.parts) {
    const std::int64_t first = std::max(at, part.begin);
    const std::int64_t last = std::min(end, part.end);
    if (first >= last) continue;
    add_flat_boxes({*part.file, part.offset + (first - part.begin) * size_bytes(DType::kF32),
                    begin + first - at, begin + last - at},
                   {.columns = tensor.columns}, tensor);
  }
}

// Elements of the fp32 vector from `at` on as a tensor of that shape. Asserts that it has them.
inline BoxedTensor tensor_in(const FlatVector& vector, std::int64_t at, std::int64_t rows,
                             std::int64_t columns) {
  BoxedTensor tensor{.dtype = DType::kF32, .rows = rows, .columns = columns};
  add_flat_elements(vector, at, rows * columns, 0, tensor);
  return tensor;
}

}  // namespace piton
