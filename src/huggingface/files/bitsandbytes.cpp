#include "huggingface/files/bitsandbytes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "huggingface/files/config_file.h"

namespace piton {
namespace {

constexpr std::string_view kState = ".quant_state.bitsandbytes__";
constexpr std::string_view kLargest = ".SCB";
constexpr std::int64_t kHeldBlock = 64;
constexpr std::int64_t kMostStateBytes = 65536;  // a state has some 200

void check_finite(const HfTensor& tensor, std::int64_t first, const std::vector<float>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (std::isfinite(numbers[i])) continue;
    throw Error(Fault::kData, "{}: {}: scale {} is {}, wanted a finite number",
                tensor.file->path().string(), tensor.name, first + static_cast<std::int64_t>(i),
                numbers[i]);
  }
}

// A vector of numbers, all of them.
std::vector<float> read_map(const HfTensor& tensor, std::int64_t count) {
  expect_tensor(tensor, "F32", {count});
  return read_floats(tensor, 0, count);
}

// A vector of at least one number each for `blocks` blocks.
void expect_blocks(const HfTensor& tensor, bool codes, std::int64_t blocks) {
  if (codes) return expect_tensor(tensor, "U8", {blocks});
  if (is_floating(tensor) && tensor.shape == std::vector<std::int64_t>{blocks}) return;
  refuse_tensor(tensor, fmt::format("F32 [{}]", blocks));
}

HfConfig read_state(const HfTensor& tensor) {
  if (tensor.dtype != "U8" || tensor.shape.size() != 1 || tensor.shape[0] > kMostStateBytes)
    refuse_tensor(tensor, "U8 [bytes of JSON]");
  const auto text = read_elements<char>(tensor, 0, tensor.shape[0]);
  return {std::string(text.begin(), text.end()),
          fmt::format("{}: {}", tensor.file->path().string(), tensor.name)};
}

DType dtype_of_state(const HfConfig& state) {
  const std::string word = state.word("dtype", "float32");
  if (word == "float32") return DType::kF32;
  if (word == "float16") return DType::kF16;
  if (word == "bfloat16") return DType::kBF16;
  state.refuse("dtype", "float32, float16 or bfloat16");
}

std::int64_t parts_of(std::int64_t size, std::int64_t part) { return (size - 1) / part + 1; }

FourBitMatrix take_four_bits(const std::string& weight, const std::string& state_name,
                             std::map<std::string, HfTensor>& named) {
  const HfTensor state_tensor = named.extract(state_name).mapped();
  const HfConfig state = read_state(state_tensor);
  const auto take = [&](const std::string& end) {
    return take_tensor(named, weight + end, state_tensor);
  };
  FourBitMatrix matrix;
  std::tie(matrix.rows, matrix.columns) = state.two_sizes("shape");
  matrix.codes = take("");
  const std::int64_t elements = matrix.rows * matrix.columns;
  const std::int64_t bytes = parts_of(elements, 2);
  const std::vector<std::int64_t> flat = {bytes};
  const std::vector<std::int64_t> transposed = {1, bytes};
  if (matrix.codes.dtype != "U8" ||
      (matrix.codes.shape != flat && matrix.codes.shape != transposed))
    expect_tensor(matrix.codes, "U8", {bytes, 1});
  matrix.map = read_map(take(".quant_map"), 16);
  matrix.block = state.size("blocksize");
  matrix.value_dtype = dtype_of_state(state);
  const std::int64_t blocks = parts_of(elements, matrix.block);
  matrix.largest = take(".absmax");
  expect_blocks(matrix.largest, matrix.largest.dtype == "U8", blocks);
  if (matrix.largest.dtype == "U8") {
    FourBitMatrix::Nested nested{.largest = take(".nested_absmax"),
                                 .map = read_map(take(".nested_quant_map"), 256),
                                 .block = state.size("nested_blocksize"),
                                 .offset = static_cast<float>(state.number("nested_offset"))};
    expect_blocks(nested.largest, false, parts_of(blocks, nested.block));
    matrix.nested = std::move(nested);
  }
  return matrix;
}

Int8RowMatrix take_int8(const std::string& module, std::map<std::string, HfTensor>& named) {
  Int8RowMatrix matrix;
  matrix.largest = named.extract(module + std::string(kLargest)).mapped();
  matrix.codes = take_tensor(named, module + ".weight", matrix.largest);
  if (matrix.codes.dtype != "I8" || matrix.codes.shape.size() != 2 ||
      std::ranges::count(matrix.codes.shape, 0) > 0)
    refuse_tensor(matrix.codes, "I8 [out, in]");
  matrix.rows = matrix.codes.shape[0];
  matrix.columns = matrix.codes.shape[1];
  expect_blocks(matrix.largest, false, matrix.rows);
  if (const auto layout = named.find(module + ".weight_format"); layout != named.end()) {
    const HfTensor tensor = named.extract(layout).mapped();
    if (tensor.dtype != "U8" || !has_one_element(tensor)) refuse_tensor(tensor, "U8 []");
    if (const auto number = read_elements<std::uint8_t>(tensor, 0, 1).front(); number != 0) {
      throw Error(Fault::kData, "{}: {} is {}, wanted 0: a matrix in rows",
                  tensor.file->path().string(), tensor.name, number);
    }
  }
  return matrix;
}

}  // namespace

std::optional<CodeFormat> Int8RowMatrix::format() const {
  return CodeFormat{.rule = Quantization::kInt8, .group = 0};
}

void Int8RowMatrix::read_codes(const StoredRow& part, const CodedRow& to) const {
  codes.file->read_at(codes.offset + part.row * columns + part.column,
                      std::span(to.codes, static_cast<std::size_t>(part.columns)));
  const std::vector<float> most = read_floats(largest, part.row, 1);
  check_finite(largest, part.row, most);
  constexpr float kUnit = 7.874015718698502e-3F;  // 1 / 127, as the library has it
  const float scale = most.front() * kUnit;
  std::memcpy(to.scales, &scale, sizeof(scale));
}

std::optional<CodeFormat> FourBitMatrix::format() const {
  const bool held =
      std::ranges::equal(map, kNf4Values) && block == kHeldBlock && columns % kHeldBlock == 0;
  if (!held) return std::nullopt;
  return CodeFormat{.rule = Quantization::kNf4, .group = kHeldBlock};
}

DType FourBitMatrix::dtype() const { return format() ? DType::kF32 : value_dtype; }

std::vector<float> FourBitMatrix::scales(std::int64_t first, std::int64_t count) const {
  std::vector<float> numbers;
  if (!nested) {
    numbers = read_floats(largest, first, count);
  } else {
    const std::int64_t begin = first / nested->block;
    const std::int64_t end = (first + count - 1) / nested->block + 1;
    const std::vector<float> outer = read_floats(nested->largest, begin, end - begin);
    const auto places = read_elements<std::uint8_t>(largest, first, count);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>((first + i) / nested->block - begin);
      const float product = nested->map[places[static_cast<std::size_t>(i)]] * outer[at];
      numbers.push_back(product + nested->offset);
    }
  }
  check_finite(largest, first, numbers);
  return numbers;
}

void FourBitMatrix::read_codes(const StoredRow& part, const CodedRow& to) const {
  const std::int64_t first = part.row * columns + part.column;
  const std::span bytes(to.codes, static_cast<std::size_t>(part.columns / 2));
  codes.file->read_at(codes.offset + first / 2, bytes);
  for (std::byte& byte : bytes) byte = byte << 4 | byte >> 4;
  const std::vector<float> numbers = scales(first / block, part.columns / block);
  std::memcpy(to.scales, numbers.data(), numbers.size() * sizeof(float));
}

void FourBitMatrix::read_values(std::int64_t row, std::span<float> values) const {
  const std::int64_t first = row * columns;
  const std::int64_t last = first + columns - 1;
  const auto bytes = read_elements<std::uint8_t>(codes, first / 2, last / 2 - first / 2 + 1);
  const std::int64_t begin = first / block;
  const std::vector<float> numbers = scales(begin, last / block - begin + 1);
  for (std::int64_t i = first; i <= last; ++i) {
    const std::uint8_t byte = bytes[static_cast<std::size_t>(i / 2 - first / 2)];
    const std::size_t code = i % 2 == 0 ? byte >> 4 : byte & 15;
    values[static_cast<std::size_t>(i - first)] =
        numbers[static_cast<std::size_t>(i / block - begin)] * map[code];
  }
  if (!format()) round_values(value_dtype, values);
}

QuantizedMatrices take_bitsandbytes(std::map<std::string, HfTensor>& named) {
  std::vector<std::string> states, modules;
  for (const auto& [name, tensor] : named) {
    if (name.find(kState) != std::string::npos) states.push_back(name);
    if (name.ends_with(kLargest)) modules.push_back(name.substr(0, name.size() - kLargest.size()));
  }
  QuantizedMatrices matrices;
  for (const std::string& state : states) {
    const std::string weight = state.substr(0, state.find(kState));
    matrices[weight] = std::make_unique<FourBitMatrix>(take_four_bits(weight, state, named));
  }
  for (const std::string& module : modules) {
    matrices[module + ".weight"] = std::make_unique<Int8RowMatrix>(take_int8(module, named));
  }
  return matrices;
}

}  // namespace piton
