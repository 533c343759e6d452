// A matrix of a Hugging Face folder that is stored quantized: what all methods of quantization
// share. Rows are read when they are needed, as values, or as codes where WeightCodes
// (kernels/call.h) can hold what the file has.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "codes/code_format.h"
#include "huggingface/files/tensor_files.h"

namespace piton {

inline constexpr const char* kQuantizationKey = "quantization_config";

// A matrix [rows, columns].
struct QuantizedMatrix {
  HfTensor codes;  // also for messages
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stacks = 0;  // matrices of `rows / stacks` rows; 0: one
  bool turned = false;      // rows are those of a tensor that is otherwise stored transposed

  virtual ~QuantizedMatrix() = default;
  // Of the values, which are exact in it.
  virtual DType dtype() const { return DType::kF32; }
  // Nullopt if it is read as values alone.
  virtual std::optional<CodeFormat> format() const { return std::nullopt; }
  // Columns [part.column, ...) of stored row part.row, whole groups of it; only with a format.
  virtual void read_codes(const StoredRow& part, const CodedRow& to) const;
  // values [columns] of a stored row. Without an override: those of whole numbers in the codes.
  virtual void read_values(std::int64_t row, std::span<float> values) const;
};

using QuantizedMatrices = std::map<std::string, std::unique_ptr<QuantizedMatrix>>;

// Memory for a row of a held format.
class CodedRowBuffer {
 public:
  CodedRowBuffer(const CodeFormat& format, std::int64_t columns);
  CodedRowBuffer(const CodedRowBuffer&) = delete;  // row() points into it
  CodedRowBuffer& operator=(const CodedRowBuffer&) = delete;
  const CodedRow& row() const { return row_; }
  std::int64_t groups() const { return groups_; }

 private:
  std::int64_t groups_;
  std::vector<std::byte> codes_;
  std::vector<float> scales_, zeros_;
  CodedRow row_;
};

// As TensorSource::read() of a tensor [rows, columns] whose rows `values_of` gives.
void read_by_rows(const Shape& shape, const TensorRun& run, DType dtype, std::byte* dst,
                  const std::function<void(std::int64_t row, std::span<float> values)>& values_of);

struct CodedMatrixShape {
  const std::string& name;
  const Shape& shape;  // [rows, columns]
};

// As TensorSource::read() of a matrix for which source.stored_format() is one of the held formats
// of whole numbers, by read_codes(): a row at a time.
void read_coded(TensorSource& source, const CodedMatrixShape& matrix, const TensorRun& run,
                DType dtype, std::byte* dst);

// Whether any matrix of a source is stored as codes, of any format.
bool stores_codes(const TensorSource& source);

// Throws Error(kData): the tensor is not `wanted`, a type and shape.
[[noreturn]] void refuse_tensor(const HfTensor& tensor, const std::string& wanted);
void expect_tensor(const HfTensor& tensor, const std::string& dtype,
                   const std::vector<std::int64_t>& shape);
// Whether it has numbers that read_floats() reads.
bool is_floating(const HfTensor& tensor);
bool has_one_element(const HfTensor& tensor);

// Removes `name` and gives it; throws Error(kData) if it is not there, with the folder of
// `neighbor`.
HfTensor take_tensor(std::map<std::string, HfTensor>& named, const std::string& name,
                     const HfTensor& neighbor);

// Throws Error(kData) unless the file has elements [0, end) of `width` bytes of it: before memory
// is taken for them.
void expect_elements(const HfTensor& tensor, std::int64_t end, std::int64_t width);
// Elements [first, first + count) of its bytes as T.
template <typename T>
std::vector<T> read_elements(const HfTensor& tensor, std::int64_t first, std::int64_t count) {
  expect_elements(tensor, first + count, static_cast<std::int64_t>(sizeof(T)));
  std::vector<T> elements(static_cast<std::size_t>(count));
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(T));
  tensor.file->read_at(tensor.offset + first * kWidth, std::as_writable_bytes(std::span(elements)));
  return elements;
}
// Of F32, BF16 and F16.
std::vector<float> read_floats(const HfTensor& tensor, std::int64_t first, std::int64_t count);

// Rounds to a type of 16 bits; nothing in fp32.
void round_values(DType dtype, std::span<float> values);

}  // namespace piton
