#include "checkpoint/assembly.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

// Bytes of a block: large enough that system calls cost nothing compared with the copy.
constexpr std::int64_t kAssembledBytes = std::int64_t{8} << 20;
// Bytes of a block of a transposed tensor: each block reads a part of every row of its source.
constexpr std::int64_t kTurnedBytes = std::int64_t{64} << 20;

// Checks the parts and returns them in the order of their rows.
std::vector<const AssemblyPart*> in_order(const Assembly& assembly) {
  std::vector<const AssemblyPart*> parts;
  for (const AssemblyPart& part : assembly.parts) {
    if (part.extent[0] > 0) parts.push_back(&part);
  }
  if (assembly.matrices > 1) {
    std::int64_t columns = 0;
    for (const AssemblyPart* part : parts) columns += part->extent[0];
    PITON_ASSERT(columns == assembly.matrices * assembly.shape[1], "{}: {} columns of {} x {}",
                 assembly.name, columns, assembly.matrices, to_string(assembly.shape));
    return parts;
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

struct Transposition {
  std::int64_t rows = 0;     // of the source
  std::int64_t columns = 0;  // of the source
  std::int64_t stride = 0;   // elements from one row of the result to the next
  std::int64_t step = 1;     // and from one column to the next
};

// to[j][i step] = from[i][j]
template <typename Unit>
void transpose(const std::byte* from, std::byte* to, const Transposition& sizes) {
  const auto& [rows, columns, stride, step] = sizes;
  constexpr std::int64_t kTile = 32;
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Unit));
  for (std::int64_t i0 = 0; i0 < rows; i0 += kTile) {
    for (std::int64_t j0 = 0; j0 < columns; j0 += kTile) {
      for (std::int64_t j = j0; j < std::min(columns, j0 + kTile); ++j) {
        for (std::int64_t i = i0; i < std::min(rows, i0 + kTile); ++i)
          std::memcpy(to + (j * stride + i * step) * kWidth, from + (i * columns + j) * kWidth,
                      kWidth);
      }
    }
  }
}

// `width`: bytes of an element.
void transpose(std::int64_t width, const std::byte* from, std::byte* to,
               const Transposition& sizes) {
  if (width == 2) return transpose<std::uint16_t>(from, to, sizes);
  if (width == 4) return transpose<std::uint32_t>(from, to, sizes);
  PITON_ASSERT(width == 8, "elements of {} bytes", width);
  transpose<std::uint64_t>(from, to, sizes);
}

// Memory that grows and keeps what it has: pages that were touched once cost nothing again.
class Buffer {
 public:
  std::byte* of_at_least(std::int64_t bytes) {
    const auto wanted = static_cast<std::size_t>(bytes);
    if (wanted > size_) {
      data_ = std::make_unique_for_overwrite<std::byte[]>(wanted);
      size_ = wanted;
    }
    return data_.get();
  }
  std::byte* data() const { return data_.get(); }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::size_t size_ = 0;
};

struct AssemblyBlock {
  Buffer buffer;
  std::size_t size = 0;    // bytes
  std::size_t tensor = 0;  // that they are of
  std::span<const std::byte> bytes() const { return {buffer.data(), size}; }
};

// Reads the blocks of tensors in order.
class AssemblyReader {
 public:
  AssemblyReader(TensorSource& source, std::span<const TypedAssembly> tensors)
      : source_(source), tensors_(tensors) {}

  // Fills `block` with the next bytes; false: there are no more.
  bool read(AssemblyBlock& block) {
    for (; tensor_ < tensors_.size(); ++tensor_) {
      const Assembly& assembly = tensors_[tensor_].assembly;
      if (!opened_) parts_ = in_order(assembly);
      opened_ = true;
      block.tensor = tensor_;
      if (assembly.transposed ? read_transposed(block) : read_rows(block)) return true;
      opened_ = false;
      part_ = 0;
      at_ = 0;
    }
    return false;
  }

 private:
  // Elements from number at_ of part number part_ on.
  bool read_rows(AssemblyBlock& block) {
    const TypedAssembly& tensor = tensors_[tensor_];
    const std::int64_t width = size_bytes(tensor.dtype);
    const std::int64_t most = std::min(kAssembledBytes / width, tensor.assembly.shape.elements());
    std::byte* const bytes = block.buffer.of_at_least(most * width);
    std::int64_t filled = 0;
    for (; part_ < parts_.size() && filled < most; ++part_, at_ = 0) {
      const AssemblyPart& part = *parts_[part_];
      const std::int64_t size = part.extent.elements();
      const std::int64_t count = std::min(size - at_, most - filled);
      read_part(source_, part.name,
                {.start = part.start, .extent = part.extent, .begin = at_, .end = at_ + count},
                tensor.dtype, bytes + filled * width);
      at_ += count;
      filled += count;
      if (at_ < size) break;
    }
    block.size = static_cast<std::size_t>(filled * width);
    return filled > 0;
  }

  // Rows from number at_ on.
  bool read_transposed(AssemblyBlock& block) {
    const TypedAssembly& tensor = tensors_[tensor_];
    const std::int64_t width = size_bytes(tensor.dtype);
    const std::int64_t rows = tensor.assembly.shape[0];
    const std::int64_t columns = tensor.assembly.shape[1];
    if (at_ >= rows || columns == 0) return false;
    const std::int64_t height = rows / tensor.assembly.matrices;
    const std::int64_t matrix = at_ / height;
    const std::int64_t begin = at_ % height;
    const std::int64_t count =
        std::min(height - begin, std::max<std::int64_t>(kTurnedBytes / (columns * width), 1));
    std::byte* const bytes = block.buffer.of_at_least(count * columns * width);
    for (const AssemblyPart* part : parts_) {
      if (part->matrix != matrix) continue;
      const std::int64_t size = part->extent[0];
      std::byte* const stored = stored_.of_at_least(size * count * width);
      TensorRun run{.start = {part->start[0]}, .extent = {size}, .begin = 0, .end = size * count};
      if (part->extent.ndim() > 1) {
        run.start.append(part->start[1] + begin);
        run.extent.append(count);
      }
      read_part(source_, part->name, run, tensor.dtype, stored);
      transpose(width, stored, bytes + part->row * width,
                {.rows = size, .columns = count, .stride = columns, .step = part->step});
    }
    at_ += count;
    block.size = static_cast<std::size_t>(count * columns * width);
    return true;
  }

  TensorSource& source_;
  std::span<const TypedAssembly> tensors_;
  std::size_t tensor_ = 0;  // that is being read
  bool opened_ = false;     // parts_ are its
  std::vector<const AssemblyPart*> parts_;
  std::size_t part_ = 0;
  std::int64_t at_ = 0;
  Buffer stored_;  // of a tensor that is transposed
};

}  // namespace

DType wider_dtype(DType a, DType b) {
  if (a == b) return a;
  if (size_bytes(a) == size_bytes(b)) return DType::kF32;  // bf16 and fp16
  return size_bytes(a) > size_bytes(b) ? a : b;
}

DType dtype_of(const Assembly& assembly, const std::map<std::string, DType>& stored) {
  std::optional<DType> dtype;
  for (const AssemblyPart& part : assembly.parts) {
    if (part.name.empty()) continue;
    const DType own = stored.at(part.name);
    dtype = dtype ? wider_dtype(*dtype, own) : own;
  }
  return dtype.value_or(stored.begin()->second);
}

void assemble(TensorSource& source, std::span<const TypedAssembly> tensors, ThreadPool* threads,
              const std::function<void(std::size_t, std::span<const std::byte>)>& take) {
  AssemblyReader reader(source, tensors);
  std::array<AssemblyBlock, 2> blocks;
  bool more = reader.read(blocks[0]);
  for (std::size_t turn = 0; more; turn = 1 - turn) {
    const auto part = [&](std::int64_t which) {
      if (which == 0) {
        take(blocks[turn].tensor, blocks[turn].bytes());
      } else {
        more = reader.read(blocks[1 - turn]);
      }
    };
    if (threads != nullptr) {
      threads->run(2, part);
    } else {
      part(0);
      part(1);
    }
  }
}

}  // namespace piton
