// Writes matrices of whole numbers (huggingface/files/compressed_tensors.h).

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "checkpoint/values.h"
#include "huggingface/files/compressed_tensors.h"

namespace piton {
namespace {

// Calls f(row of the matrix, its codes) in order.
template <typename F>
void for_each_coded_row(TensorSource& source, const IntegerFormat& format, const Assembly& matrix,
                        F&& f) {
  const CodedRowBuffer buffer(held_format(format), matrix.shape[1]);
  std::vector<const AssemblyPart*> parts;
  for (const AssemblyPart& part : matrix.parts) parts.push_back(&part);
  std::ranges::sort(parts, {}, &AssemblyPart::row);
  std::int64_t row = 0;
  for (const AssemblyPart* part : parts) {
    for (std::int64_t i = 0; i < part->extent[0]; ++i, ++row) {
      source.read_codes(part->name, {part->start[0] + i, 0, matrix.shape[1]}, buffer.row());
      f(row, buffer);
    }
  }
  PITON_ASSERT(row == matrix.shape[0], "{}: {} rows of {}", matrix.name, row, matrix.shape[0]);
}

std::span<const std::byte> bytes_of(const std::vector<std::byte>& bytes) { return bytes; }

void write_codes(TensorSource& source, const IntegerFormat& format, const Assembly& matrix,
                 const std::function<void(std::span<const std::byte>)>& take) {
  const std::int64_t columns = matrix.shape[1];
  const auto used = static_cast<std::size_t>((columns * format.bits + 7) / 8);
  std::vector<std::byte> words((used + 3) / 4 * 4);
  for_each_coded_row(source, format, matrix, [&](std::int64_t, const CodedRowBuffer& row) {
    std::copy_n(row.row().codes, used, words.begin());
    if (format.bits == 8) {
      for (std::size_t i = 0; i < used; ++i) words[i] ^= std::byte{0x80};
    } else if (columns % 2 != 0) {
      words[used - 1] &= std::byte{15};
    }
    take(bytes_of(words));
  });
}

void write_scales(TensorSource& source, const IntegerFormat& format, const Assembly& matrix,
                  const std::function<void(std::span<const std::byte>)>& take) {
  std::vector<std::byte> scales;
  for_each_coded_row(source, format, matrix, [&](std::int64_t at, const CodedRowBuffer& row) {
    if (format.whole_tensor && at > 0) return;
    scales.resize(static_cast<std::size_t>(row.groups() * size_bytes(format.scale)));
    convert_values(row.row().scales, DType::kF32, scales.data(), format.scale, row.groups());
    take(bytes_of(scales));
  });
}

// One of 32 / bits rows of zero points in each word; of a tensor one byte.
void write_zeros(TensorSource& source, const IntegerFormat& format, const Assembly& matrix,
                 const std::function<void(std::span<const std::byte>)>& take) {
  const std::int64_t in_word = 32 / format.bits;
  const int offset = format.bits == 4 ? 0 : 128;
  std::vector<std::uint32_t> words;
  for_each_coded_row(source, format, matrix, [&](std::int64_t at, const CodedRowBuffer& row) {
    if (format.whole_tensor) {
      const float point = *row.row().zeros - (format.bits == 4 ? 8 : 0);
      const auto byte = static_cast<std::byte>(static_cast<std::int8_t>(point));
      if (at == 0) take({&byte, 1});
      return;
    }
    if (at % in_word == 0) words.assign(static_cast<std::size_t>(row.groups()), 0);
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto point = static_cast<std::uint32_t>(static_cast<int>(row.row().zeros[i]) + offset);
      words[i] |= point << (at % in_word * format.bits);
    }
    if (at % in_word == in_word - 1 || at == matrix.shape[0] - 1)
      take(std::as_bytes(std::span(words)));
  });
}

}  // namespace

void write_compressed(TensorSource& source, const IntegerFormat& format, const Assembly& matrix,
                      const SafetensorsEntry& entry,
                      const std::function<void(std::span<const std::byte>)>& take) {
  if (entry.name.ends_with("_packed")) return write_codes(source, format, matrix, take);
  if (entry.name.ends_with("_scale")) return write_scales(source, format, matrix, take);
  if (entry.name.ends_with("_zero_point")) return write_zeros(source, format, matrix, take);
  const std::int64_t shape[2] = {matrix.shape[0], matrix.shape[1]};
  take(std::as_bytes(std::span(shape)));
}

}  // namespace piton
