#include "megatron/format/canonical_pieces.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "checkpoint/file_tensor.h"
#include "model/canonical_tensors.h"

namespace piton {
namespace {

// Bytes of a buffer: it stays in the second-level cache until its bytes are used.
constexpr std::int64_t kBlockBytes = std::int64_t{1} << 18;
// Bytes of a block of a transposed tensor: each block reads a part of every stored row.
constexpr std::int64_t kTurnedBytes = std::int64_t{32} << 20;

}  // namespace

void CanonicalPieces::add(const Assembly& assembly, const BoxedTensor& stored,
                          const std::string& where) {
  const std::int64_t width = size_bytes(stored.dtype);
  for (const AssemblyPart& part : assembly.parts) {
    if (part.name.empty()) continue;  // padding
    Canonical& canonical = tensors_[part.name];
    const bool matrix = part.extent.ndim() > 1;
    for (const TensorBox& box : stored.boxes) {
      const std::int64_t top = std::max(part.row, box.row);
      const std::int64_t bottom = std::min(part.row + part.extent[0], box.row + box.rows);
      if (top >= bottom) continue;
      const Piece piece{
          .row = part.start[0] + top - part.row,
          .rows = bottom - top,
          .column = (matrix ? part.start[1] : 0) + box.column,
          .columns = box.columns,
          .file = box.file,
          .offset = box.offset + (top - box.row) * (box.transposed ? 1 : box.stride) * width,
          .stride = box.stride,
          .transposed = box.transposed};
      const bool known = std::ranges::any_of(canonical.pieces, [&](const Piece& other) {
        return other.row <= piece.row && piece.row + piece.rows <= other.row + other.rows &&
               other.column <= piece.column &&
               piece.column + piece.columns <= other.column + other.columns;
      });
      if (known) continue;
      if (!canonical.pieces.empty() && canonical.tensor.dtype != stored.dtype) {
        throw Error(Fault::kData, "{}: {} is {} here and {} on another rank", where, part.name,
                    name(stored.dtype), name(canonical.tensor.dtype));
      }
      canonical.tensor.dtype = stored.dtype;
      canonical.pieces.push_back(piece);
    }
  }
}

void CanonicalPieces::check_cover(const ModelConfig& model) {
  const std::vector<CanonicalShape> all = canonical_tensors(model);
  for (const CanonicalShape& wanted : all) {
    Canonical& canonical = tensors_[wanted.name];
    std::int64_t elements = 0;
    for (const Piece& piece : canonical.pieces) elements += piece.rows * piece.columns;
    PITON_ASSERT(elements == wanted.shape.elements(), "{}: {} elements of {}", wanted.name,
                 elements, to_string(wanted.shape));
    canonical.tensor.name = wanted.name;
    canonical.tensor.shape = wanted.shape;
    std::ranges::sort(canonical.pieces, {}, &Piece::row);
  }
  PITON_ASSERT(tensors_.size() == all.size(), "{} tensors", tensors_.size());
}

std::vector<CanonicalTensor> CanonicalPieces::tensors() const {
  std::vector<CanonicalTensor> result;
  for (const auto& [name, canonical] : tensors_) result.push_back(canonical.tensor);
  return result;
}

void CanonicalPieces::read_window(const Piece& piece, DType from, const Window& window, DType dtype,
                                  std::byte* dst) {
  const auto [top, bottom, left, right] = window;
  const std::int64_t rows = bottom - top;
  const std::int64_t columns = right - left;
  TensorRun run{.start = {top - piece.row, left - piece.column}, .extent = {rows, columns}};
  run.end = rows * columns;
  FileTensor stored{.file = *piece.file, .offset = piece.offset, .dtype = from};
  stored.shape = {piece.transposed ? piece.columns : piece.rows, piece.stride};
  if (!piece.transposed) return read_run(stored, run, dtype, dst);
  std::swap(run.start[0], run.start[1]);
  std::swap(run.extent[0], run.extent[1]);
  const std::int64_t width = size_bytes(dtype);
  const auto turned =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(run.end * width));
  read_run(stored, run, dtype, turned.get());
  constexpr std::int64_t kTile = 32;  // rows whose lines stay in the first-level cache
  for (std::int64_t first = 0; first < columns; first += kTile) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = first; column < std::min(first + kTile, columns); ++column) {
        std::memcpy(dst + (row * columns + column) * width,
                    turned.get() + (column * rows + row) * width, static_cast<std::size_t>(width));
      }
    }
  }
}

void CanonicalPieces::read_piece(const Piece& piece, DType from, const ColumnRun& wanted,
                                 DType dtype, std::byte* dst) {
  const auto& [run, columns, first_column] = wanted;
  const std::int64_t width = size_bytes(dtype);
  const std::int64_t first_row = run.start[0] + run.begin / columns;
  const std::int64_t last_row = run.start[0] + (run.end + columns - 1) / columns;
  const std::int64_t top = std::max(piece.row, first_row);
  const std::int64_t bottom = std::min(piece.row + piece.rows, last_row);
  const std::int64_t left = std::max(piece.column, first_column);
  const std::int64_t right = std::min(piece.column + piece.columns, first_column + columns);
  if (top >= bottom || left >= right) return;
  const std::int64_t count = right - left;
  const std::int64_t at = (top - run.start[0]) * columns;  // of its first row in the region
  if (count == columns && !piece.transposed) {
    const FileTensor stored{.file = *piece.file,
                            .offset = piece.offset,
                            .dtype = from,
                            .shape = {piece.rows, piece.stride}};
    const std::int64_t rows = bottom - top;
    TensorRun part{.start = {top - piece.row, left - piece.column}, .extent = {rows, count}};
    part.begin = std::max(run.begin - at, std::int64_t{0});
    part.end = std::min(run.end - at, rows * count);
    return read_run(stored, part, dtype, dst + (at + part.begin - run.begin) * width);
  }
  const std::int64_t block_bytes = piece.transposed ? kTurnedBytes : kBlockBytes;
  const std::int64_t step =
      std::clamp<std::int64_t>(block_bytes / (count * width), 1, bottom - top);
  const auto block =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(step * count * width));
  for (std::int64_t first = top; first < bottom; first += step) {
    const std::int64_t rows = std::min(step, bottom - first);
    read_window(piece, from, {first, first + rows, left, right}, dtype, block.get());
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t begin = (first + row - run.start[0]) * columns + left - first_column;
      const std::int64_t from_element = std::max(begin, run.begin);
      const std::int64_t to_element = std::min(begin + count, run.end);
      if (from_element >= to_element) continue;
      std::memcpy(dst + (from_element - run.begin) * width,
                  block.get() + (row * count + from_element - begin) * width,
                  static_cast<std::size_t>((to_element - from_element) * width));
    }
  }
}

void CanonicalPieces::will_read(const Canonical& canonical, std::int64_t top, std::int64_t bottom) {
  const std::int64_t width = size_bytes(canonical.tensor.dtype);
  for (const Piece& piece : canonical.pieces) {
    const std::int64_t first = std::max(top, piece.row);
    const std::int64_t last = std::min(bottom, piece.row + piece.rows);
    const std::int64_t row = piece.stride * width;
    if (first < last && piece.transposed)
      piece.file->will_read(piece.offset, piece.columns * row);
    else if (first < last)
      piece.file->will_read(piece.offset + (first - piece.row) * row, (last - first) * row);
  }
}

void CanonicalPieces::read(const std::string& name, const TensorRun& run, DType dtype,
                           std::byte* dst) const {
  if (run.begin >= run.end) return;
  const Canonical& canonical = tensors_.at(name);
  const bool matrix = run.extent.ndim() > 1;
  const std::int64_t columns = matrix ? run.extent[1] : 1;
  const std::int64_t top = run.start[0] + run.begin / columns;
  const std::int64_t bottom = run.start[0] + (run.end + columns - 1) / columns;
  // Pieces of queries, keys and values alternate: the system sees no sequence.
  if (canonical.pieces.size() > 1) will_read(canonical, top, bottom);
  for (const Piece& piece : canonical.pieces) {
    read_piece(piece, canonical.tensor.dtype, {run, columns, matrix ? run.start[1] : 0}, dtype,
               dst);
  }
}

}  // namespace piton
