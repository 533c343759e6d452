#include "huggingface/read_place.h"

#include <algorithm>
#include <vector>

#include "huggingface/places.h"

namespace piton {
namespace {

// Of a buffer in which a weight is turned.
constexpr std::int64_t kTurnedBytes = std::int64_t{16} << 20;
// Columns of fewer at a time are read with those between them.
constexpr std::int64_t kShortChunk = 16;

// dst[i] = element run.begin + i of the region; the stored tensor is [in, out], or several one upon
// another.
void read_transposed(const FileTensor& stored, const HfPlace& place, const TensorRun& run,
                     DType dtype, std::byte* dst) {
  const bool matrix = run.extent.ndim() > 1;
  const std::int64_t columns = matrix ? run.extent[1] : 1;
  const std::int64_t before =
      stored.shape[0] / std::max<std::int64_t>(place.stacks, 1) * place.matrix +
      (matrix ? run.start[1] : 0);
  const std::int64_t width = size_bytes(dtype);
  const bool interleaved = place.chunk > 0 && place.chunk < kShortChunk;
  const std::int64_t spread = interleaved ? (place.stride + place.chunk - 1) / place.chunk : 1;
  const std::int64_t most = std::max<std::int64_t>(1, kTurnedBytes / (columns * width * spread));
  const std::int64_t first = run.start[0] + run.begin / columns;
  const std::int64_t last = run.start[0] + (run.end + columns - 1) / columns;
  std::vector<std::byte> block;
  const auto turn = [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t rows = end - begin;
    const std::int64_t at_first = stored_row(place, begin);
    const std::int64_t span = stored_row(place, end - 1) + 1 - at_first;
    block.resize(static_cast<std::size_t>(span * columns * width));
    read_run(
        stored,
        {.start = {before, at_first}, .extent = {columns, span}, .begin = 0, .end = span * columns},
        dtype, block.data());
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t in_span = stored_row(place, begin + row) - at_first;
      const std::int64_t at = (begin + row - run.start[0]) * columns;  // in the region
      const std::int64_t from = std::max(run.begin, at);
      const std::int64_t to = std::min(run.end, at + columns);
      for (std::int64_t element = from; element < to; ++element) {
        std::copy_n(block.data() + ((element - at) * span + in_span) * width, width,
                    dst + (element - run.begin) * width);
      }
    }
  };
  const auto turn_all = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; row += most) turn(row, std::min(end, row + most));
  };
  if (interleaved) return turn_all(first, last);
  for_each_chunk(place, first, last, turn_all);
}

void read_rows(const FileTensor& stored, const HfPlace& place, const TensorRun& run, DType dtype,
               std::byte* dst) {
  const bool matrix = run.extent.ndim() > 1;
  const std::int64_t columns = matrix ? run.extent[1] : 1;
  const std::int64_t first = run.start[0] + run.begin / columns;
  const std::int64_t last = run.start[0] + (run.end + columns - 1) / columns;
  for_each_chunk(place, first, last, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = (begin - run.start[0]) * columns;  // in the region
    TensorRun part;
    part.start.append(stored_row(place, begin));
    part.extent.append(end - begin);
    if (matrix) {
      part.start.append(run.start[1]);
      part.extent.append(columns);
    }
    part.begin = std::max(run.begin - at, std::int64_t{0});
    part.end = std::min(run.end - at, (end - begin) * columns);
    read_run(stored, part, dtype, dst + (at + part.begin - run.begin) * size_bytes(dtype));
  });
}

}  // namespace

void read_place(const FileTensor& stored, const HfPlace& place, const TensorRun& run, DType dtype,
                std::byte* dst) {
  if (place.transposed) return read_transposed(stored, place, run, dtype, dst);
  read_rows(stored, place, run, dtype, dst);
}

}  // namespace piton
