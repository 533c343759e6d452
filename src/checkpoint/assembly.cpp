#include "checkpoint/assembly.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

// Bytes of a block: large enough that system calls cost nothing compared with the copy.
constexpr std::int64_t kAssembledBytes = std::int64_t{8} << 20;
// Bytes of a block of a transposed tensor: each block reads a part of every row of its source.
constexpr std::int64_t kTurnedBytes = std::int64_t{128} << 20;

// Checks the parts and returns them in the order of their rows.
std::vector<const AssemblyPart*> in_order(const Assembly& assembly) {
  std::vector<const AssemblyPart*> parts;
  for (const AssemblyPart& part : assembly.parts) {
    if (part.extent[0] > 0) parts.push_back(&part);
  }
  std::ranges::sort(parts, {}, &AssemblyPart::row);
  std::int64_t row = 0;
  for (const AssemblyPart* part : parts) {
    PITON_ASSERT(part->row == row, "{}: part {} at row {}, wanted {}", assembly.name, part->name,
                 part->row, row);
    row += part->extent[0];
  }
  PITON_ASSERT(row == assembly.shape[assembly.transposed ? 1 : 0], "{}: {} rows of {}",
               assembly.name, row, to_string(assembly.shape));
  return parts;
}

void read_part(TensorSource& source, const std::string& name, const TensorRun& run, DType dtype,
               std::byte* dst) {
  if (name.empty()) {
    std::memset(dst, 0, static_cast<std::size_t>(run.size() * size_bytes(dtype)));
  } else {
    source.read(name, run, dtype, dst);
  }
}

// Transposes: to[j][i] = from[i][j]. from: [rows, columns]; rows of `to` are `stride` elements
// apart.
template <typename Unit>
void turn(const std::byte* from, std::int64_t rows, std::int64_t columns, std::byte* to,
          std::int64_t stride) {
  constexpr std::int64_t kTile = 32;
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Unit));
  for (std::int64_t i0 = 0; i0 < rows; i0 += kTile) {
    for (std::int64_t j0 = 0; j0 < columns; j0 += kTile) {
      for (std::int64_t j = j0; j < std::min(columns, j0 + kTile); ++j) {
        for (std::int64_t i = i0; i < std::min(rows, i0 + kTile); ++i)
          std::memcpy(to + (j * stride + i) * kWidth, from + (i * columns + j) * kWidth, kWidth);
      }
    }
  }
}

void turn(std::int64_t width, const std::byte* from, std::int64_t rows, std::int64_t columns,
          std::byte* to, std::int64_t stride) {
  if (width == 2) return turn<std::uint16_t>(from, rows, columns, to, stride);
  if (width == 4) return turn<std::uint32_t>(from, rows, columns, to, stride);
  PITON_ASSERT(width == 8, "elements of {} bytes", width);
  turn<std::uint64_t>(from, rows, columns, to, stride);
}

void assemble_turned(TensorSource& source, const Assembly& assembly,
                     const std::vector<const AssemblyPart*>& parts, DType dtype,
                     const std::function<void(std::span<const std::byte>)>& take) {
  const std::int64_t width = size_bytes(dtype);
  const std::int64_t rows = assembly.shape[0];
  const std::int64_t columns = assembly.shape[1];
  const std::int64_t step = std::clamp<std::int64_t>(kTurnedBytes / (columns * width), 1,
                                                     std::max<std::int64_t>(rows, 1));
  std::int64_t widest = 0;
  for (const AssemblyPart* part : parts) widest = std::max(widest, part->extent[0]);
  const auto read =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(widest * step * width));
  const auto block =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(columns * step * width));
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    for (const AssemblyPart* part : parts) {
      const std::int64_t size = part->extent[0];
      read_part(source, part->name,
                {.start = {part->start[0], part->start[1] + row},
                 .extent = {size, count},
                 .begin = 0,
                 .end = size * count},
                dtype, read.get());
      turn(width, read.get(), size, count, block.get() + part->row * width, columns);
    }
    take({block.get(), static_cast<std::size_t>(count * columns * width)});
  }
}

}  // namespace

DType wider_dtype(DType a, DType b) {
  if (a == b) return a;
  if (size_bytes(a) == size_bytes(b)) return DType::kF32;  // bf16 and fp16
  return size_bytes(a) > size_bytes(b) ? a : b;
}

DType dtype_of(const Assembly& assembly, const std::map<std::string, DType>& stored) {
  DType dtype = stored.at(assembly.parts.front().name);
  for (const AssemblyPart& part : assembly.parts) dtype = wider_dtype(dtype, stored.at(part.name));
  return dtype;
}

void assemble(TensorSource& source, const Assembly& assembly, DType dtype,
              const std::function<void(std::span<const std::byte>)>& take) {
  const std::vector<const AssemblyPart*> parts = in_order(assembly);
  if (assembly.transposed) return assemble_turned(source, assembly, parts, dtype, take);
  const std::int64_t width = size_bytes(dtype);
  const std::int64_t block = kAssembledBytes / width;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(
      static_cast<std::size_t>(std::min(block, assembly.shape.elements()) * width));
  std::int64_t filled = 0;
  const auto flush = [&] {
    if (filled > 0) take({buffer.get(), static_cast<std::size_t>(filled * width)});
    filled = 0;
  };
  for (const AssemblyPart* part : parts) {
    const std::int64_t size = part->extent.elements();
    for (std::int64_t at = 0; at < size;) {
      const std::int64_t count = std::min(size - at, block - filled);
      read_part(source, part->name,
                {.start = part->start, .extent = part->extent, .begin = at, .end = at + count},
                dtype, buffer.get() + filled * width);
      at += count;
      filled += count;
      if (filled == block) flush();
    }
  }
  flush();
}

}  // namespace piton
