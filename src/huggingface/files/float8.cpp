#include "huggingface/files/float8.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "huggingface/files/compressed_tensors.h"

namespace piton {
namespace {

constexpr const char* kCodes = "F8_E4M3";
constexpr const char* kBlocks = "weight_block_size";

// A sign, 4 bits of exponent with bias 7, 3 of fraction; no infinities, all ones are NaN.
float e4m3_value(int byte) {
  const int exponent = byte >> 3 & 15;
  const int fraction = byte & 7;
  if ((byte & 127) == 127) return std::numeric_limits<float>::quiet_NaN();
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                   : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return byte < 128 ? size : -size;
}

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (int byte = 0; byte < 256; ++byte) all[static_cast<std::size_t>(byte)] = e4m3_value(byte);
    return all;
  }();
  return values;
}

DType value_dtype(const HfConfig& config) {
  const std::string word = config.word(config.has("dtype") ? "dtype" : "torch_dtype", "bfloat16");
  return word == "float32" ? DType::kF32 : word == "float16" ? DType::kF16 : DType::kBF16;
}

// Sets the sizes of blocks from a list of two; none for null.
void set_blocks(const HfConfig& said, const std::string& key, Float8Scheme& scheme) {
  if (!said.has(key)) return;
  std::tie(scheme.block_rows, scheme.block_columns) = said.two_sizes(key);
}

std::int64_t blocks_of(std::int64_t size, std::int64_t block) {
  return block == 0 ? 1 : (size - 1) / block + 1;
}

bool is_exponent(const HfTensor& scales) {
  return scales.dtype == "U8" || scales.dtype == "F8_E8M0";
}

void check_float8_scales(const Float8Matrix& matrix) {
  const Float8Scheme& scheme = matrix.scheme;
  const HfTensor& scales = matrix.scales;
  const std::vector<std::int64_t> wanted = {blocks_of(matrix.rows, scheme.block_rows),
                                            blocks_of(matrix.columns, scheme.block_columns)};
  const std::vector<std::int64_t> flat = {matrix.rows};
  const bool fits = scales.shape == wanted ||
                    (scheme.block_rows == 1 && scales.shape == flat && scheme.block_columns == 0) ||
                    (scheme.block_rows == 0 && has_one_element(scales));
  if (fits && (is_floating(scales) || (scheme.exponents && is_exponent(scales)))) return;
  refuse_tensor(scales, fmt::format("F32, BF16 or F16 [{}]", fmt::join(wanted, ", ")));
}

std::vector<float> read_scales(const HfTensor& scales, std::int64_t first, std::int64_t count) {
  if (!is_exponent(scales)) return read_floats(scales, first, count);
  std::vector<float> values;
  for (const std::uint8_t byte : read_elements<std::uint8_t>(scales, first, count)) {
    values.push_back(byte == 255 ? std::numeric_limits<float>::quiet_NaN()
                                 : std::ldexp(1.0F, byte - 127));
  }
  return values;
}

}  // namespace

Float8Scheme float8_scheme(const HfConfig& config) {
  const HfConfig said = config.object(kQuantizationKey);
  Float8Scheme scheme{.scale = "_scale_inv", .dtype = value_dtype(config)};
  const std::string format = said.word("fmt", "e4m3");
  if (format != "e4m3") said.refuse("fmt", "e4m3");
  if (said.word("expert_dtype", "fp8") != "fp8") said.refuse("expert_dtype", "fp8");
  const std::string scale = said.word("scale_fmt", "float");
  if (scale != "float" && scale != "ue8m0") said.refuse("scale_fmt", "float or ue8m0");
  scheme.exponents = scale == "ue8m0";
  if (said.lists(kBlocks)) {
    set_blocks(said, kBlocks, scheme);
  } else {
    scheme.block_rows = scheme.block_columns = 128;
  }
  return scheme;
}

bool is_compressed_float(const HfConfig& config) {
  const HfConfig said = config.object(kQuantizationKey);
  const HfConfig weights = compressed_group(said).object("weights");
  return weights.word("type", "int") == "float";
}

Float8Scheme compressed_float_scheme(const HfConfig& config) {
  const HfConfig said = config.object(kQuantizationKey);
  const HfConfig group = compressed_group(said);
  const std::string format = said.word("format");
  if (format != "float-quantized" && format != "naive-quantized")
    said.refuse("format", "float-quantized or naive-quantized");
  if (group.word("format", format) != format) group.refuse("format", format);
  if (said.has("kv_cache_scheme")) said.refuse("kv_cache_scheme", "null");
  const HfConfig weights = group.object("weights");
  if (weights.size("num_bits") != 8) weights.refuse("num_bits", "8");
  if (!weights.flag("symmetric", true)) weights.refuse("symmetric", "true");
  if (weights.flag("dynamic", false)) weights.refuse("dynamic", "false");
  Float8Scheme scheme{.scale = "_scale", .dtype = value_dtype(config)};
  const std::string strategy = weights.word("strategy");
  if (strategy == "channel") {
    scheme.block_rows = 1;
  } else if (strategy == "block") {
    if (!weights.has("block_structure")) weights.refuse("block_structure", "two positive integers");
    set_blocks(weights, "block_structure", scheme);
  } else if (strategy != "tensor") {
    weights.refuse("strategy", "tensor, channel or block");
  }
  return scheme;
}

void Float8Matrix::read_values(std::int64_t row, std::span<float> values) const {
  const std::int64_t across = blocks_of(columns, scheme.block_columns);
  const std::int64_t down = scheme.block_rows == 0 ? 0 : row / scheme.block_rows;
  const std::vector<float> row_scales = read_scales(scales, down * across, across);
  for (std::size_t i = 0; i < row_scales.size(); ++i) {
    if (std::isfinite(row_scales[i])) continue;
    throw Error(Fault::kData, "{}: {}: scale [{}, {}] is {}, wanted a finite number",
                scales.file->path().string(), scales.name, down, i, row_scales[i]);
  }
  const auto bytes = read_elements<std::uint8_t>(codes, row * columns, columns);
  const std::array<float, 256>& numbers = e4m3_values();
  const std::int64_t block = scheme.block_columns == 0 ? columns : scheme.block_columns;
  for (std::int64_t i = 0; i < columns; ++i) {
    const auto at = static_cast<std::size_t>(i);
    values[at] = row_scales[static_cast<std::size_t>(i / block)] * numbers[bytes[at]];
    if (!std::isfinite(values[at])) {
      throw Error(Fault::kData, "{}: {}: number [{}, {}] is {}, wanted a finite one",
                  codes.file->path().string(), codes.name, row, i, values[at]);
    }
  }
  round_values(scheme.dtype, values);
}

std::map<std::string, Float8Matrix> take_float8(const Float8Scheme& scheme,
                                                std::map<std::string, HfTensor>& named) {
  std::erase_if(named, [](const auto& one) {
    return one.first.ends_with(".input_scale") || one.first.ends_with(".activation_scale");
  });
  std::vector<std::string> weights;
  for (const auto& [name, tensor] : named) {
    if (tensor.dtype == kCodes) weights.push_back(name);
    if (!name.ends_with(".weight" + scheme.scale)) continue;
    const std::string weight = name.substr(0, name.size() - scheme.scale.size());
    if (!named.contains(weight)) weights.push_back(weight);
  }
  std::map<std::string, Float8Matrix> matrices;
  for (const std::string& weight : weights) {
    const std::string scale = weight + scheme.scale;
    Float8Matrix matrix;
    matrix.scheme = scheme;
    matrix.codes = take_tensor(named, weight, named.begin()->second);
    matrix.scales = take_tensor(named, scale, matrix.codes);
    if (matrix.codes.shape.size() != 2 || std::ranges::count(matrix.codes.shape, 0) > 0)
      refuse_tensor(matrix.codes, "F8_E4M3 [out, in]");
    matrix.rows = matrix.codes.shape[0];
    matrix.columns = matrix.codes.shape[1];
    check_float8_scales(matrix);
    matrices[weight] = std::move(matrix);
  }
  return matrices;
}

}  // namespace piton
