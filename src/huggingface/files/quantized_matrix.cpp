#include "huggingface/files/quantized_matrix.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/values.h"
#include "codes/integer_codes.h"

namespace piton {

void QuantizedMatrix::read_codes(const StoredRow& part, const CodedRow& to) const {
  PITON_ASSERT(false, "{}: no codes of row {} are held in {}", codes.name, part.row,
               static_cast<const void*>(to.codes));
}

void QuantizedMatrix::read_values(std::int64_t row, std::span<float> values) const {
  const CodedRowBuffer buffer(*format(), columns);
  read_codes({row, 0, columns}, buffer.row());
  integer_values(*format(), buffer.row(), values);
}

CodedRowBuffer::CodedRowBuffer(const CodeFormat& format, std::int64_t columns)
    : groups_(format.group == 0 ? 1 : (columns + format.group - 1) / format.group),
      codes_(static_cast<std::size_t>(code_bytes(code_kind(format), columns))),
      scales_(static_cast<std::size_t>(groups_)),
      zeros_(static_cast<std::size_t>(groups_)) {
  row_ = {.codes = codes_.data(),
          .scales = reinterpret_cast<std::byte*>(scales_.data()),
          .zeros = has_zeros(format) ? zeros_.data() : nullptr};
}

void read_by_rows(const Shape& shape, const TensorRun& run, DType dtype, std::byte* dst,
                  const std::function<void(std::int64_t row, std::span<float> values)>& values_of) {
  const std::int64_t columns = shape[1];
  std::vector<float> values(static_cast<std::size_t>(columns));
  std::int64_t held = -1;
  for_each_stretch(shape, run, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t row = (from + done) / columns;
      const std::int64_t column = (from + done) % columns;
      const std::int64_t part = std::min(count - done, columns - column);
      if (row != held) {
        values_of(row, values);
        held = row;
      }
      convert_values(reinterpret_cast<const std::byte*>(values.data() + column), DType::kF32,
                     dst + (to + done - run.begin) * size_bytes(dtype), dtype, part);
      done += part;
    }
  });
}

void read_coded(TensorSource& source, const CodedMatrixShape& matrix, const TensorRun& run,
                DType dtype, std::byte* dst) {
  const CodeFormat format = *source.stored_format(matrix.name);
  const std::int64_t columns = matrix.shape[1];
  const CodedRowBuffer buffer(format, columns);
  read_by_rows(matrix.shape, run, dtype, dst, [&](std::int64_t row, std::span<float> values) {
    source.read_codes(matrix.name, {row, 0, columns}, buffer.row());
    integer_values(format, buffer.row(), values);
  });
}

bool stores_codes(const TensorSource& source) {
  return std::ranges::any_of(source.tensors(TensorKind::kWeight), [&](const CanonicalTensor& one) {
    return source.stored_format(one.name).has_value();
  });
}

void refuse_tensor(const HfTensor& tensor, const std::string& wanted) {
  throw Error(Fault::kData, "{}: {} is {} [{}], wanted {}; is the folder complete?",
              tensor.file->path().string(), tensor.name, tensor.dtype,
              fmt::join(tensor.shape, ", "), wanted);
}

void expect_tensor(const HfTensor& tensor, const std::string& dtype,
                   const std::vector<std::int64_t>& shape) {
  if (tensor.dtype == dtype && tensor.shape == shape) return;
  refuse_tensor(tensor, fmt::format("{} [{}]", dtype, fmt::join(shape, ", ")));
}

bool is_floating(const HfTensor& tensor) {
  return tensor.dtype == "F32" || tensor.dtype == "BF16" || tensor.dtype == "F16";
}

bool has_one_element(const HfTensor& tensor) {
  return std::ranges::all_of(tensor.shape, [](std::int64_t size) { return size == 1; });
}

HfTensor take_tensor(std::map<std::string, HfTensor>& named, const std::string& name,
                     const HfTensor& neighbor) {
  const auto found = named.find(name);
  if (found == named.end()) {
    throw Error(Fault::kData, "{}: {} is missing; is the download complete?",
                neighbor.file->path().parent_path().string(), name);
  }
  return named.extract(found).mapped();
}

void expect_elements(const HfTensor& tensor, std::int64_t end, std::int64_t width) {
  const std::int64_t bytes = tensor.file->size_bytes() - tensor.offset;
  if (end <= bytes / width) return;
  throw Error(Fault::kData, "{}: {}: {} elements of {} bytes do not fit into the file",
              tensor.file->path().string(), tensor.name, end, width);
}

std::vector<float> read_floats(const HfTensor& tensor, std::int64_t first, std::int64_t count) {
  const DType dtype = *dtype_of_safetensors(tensor.dtype);
  const std::int64_t width = size_bytes(dtype);
  expect_elements(tensor, first + count, width);
  std::vector<std::byte> raw(static_cast<std::size_t>(count * width));
  tensor.file->read_at(tensor.offset + first * width, raw);
  std::vector<float> values(static_cast<std::size_t>(count));
  convert_values(raw.data(), dtype, reinterpret_cast<std::byte*>(values.data()), DType::kF32,
                 count);
  return values;
}

void round_values(DType dtype, std::span<float> values) {
  if (dtype == DType::kF32) return;
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> rounded(static_cast<std::size_t>(count * size_bytes(dtype)));
  auto* const plain = reinterpret_cast<std::byte*>(values.data());
  convert_values(plain, DType::kF32, rounded.data(), dtype, count);
  convert_values(rounded.data(), dtype, plain, DType::kF32, count);
}

}  // namespace piton
