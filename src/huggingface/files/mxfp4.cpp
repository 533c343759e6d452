#include "huggingface/files/mxfp4.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::int64_t kMxfp4Columns = 32;  // of a block
constexpr std::int64_t kMxfp4Bytes = 16;    // of it
constexpr const char* kMxfp4Blocks = "_blocks";
constexpr const char* kMxfp4Scales = "_scales";

constexpr float kMxfp4Numbers[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                     -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

}  // namespace

void Mxfp4Matrix::read_values(std::int64_t row, std::span<float> values) const {
  const std::int64_t blocks = columns / kMxfp4Columns;
  const auto bytes =
      read_elements<std::uint8_t>(codes, row * blocks * kMxfp4Bytes, blocks * kMxfp4Bytes);
  const auto exponents = read_elements<std::uint8_t>(scales, row * blocks, blocks);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const int exponent = exponents[static_cast<std::size_t>(block)];
    if (exponent == 255) {
      throw Error(Fault::kData, "{}: {}: scale {} of row {} is 255, wanted at most 254",
                  scales.file->path().string(), scales.name, block, row);
    }
    const float scale = std::ldexp(1.0F, exponent - 127);
    for (std::int64_t i = 0; i < kMxfp4Bytes; ++i) {
      const int byte = bytes[static_cast<std::size_t>(block * kMxfp4Bytes + i)];
      const auto at = static_cast<std::size_t>(block * kMxfp4Columns + 2 * i);
      values[at] = scale * kMxfp4Numbers[byte & 15];
      values[at + 1] = scale * kMxfp4Numbers[byte >> 4];
    }
  }
  round_values(DType::kBF16, values);
}

std::map<std::string, Mxfp4Matrix> take_mxfp4(std::map<std::string, HfTensor>& named) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) {
    for (const std::string end : {kMxfp4Blocks, kMxfp4Scales}) {
      if (!name.ends_with(end)) continue;
      const std::string whole = name.substr(0, name.size() - end.size());
      if (names.empty() || names.back() != whole) names.push_back(whole);
    }
  }
  std::map<std::string, Mxfp4Matrix> matrices;
  for (const std::string& name : names) {
    const HfTensor neighbor = named.begin()->second;
    Mxfp4Matrix matrix;
    matrix.codes = take_tensor(named, name + kMxfp4Blocks, neighbor);
    matrix.scales = take_tensor(named, name + kMxfp4Scales, matrix.codes);
    const std::vector<std::int64_t>& shape = matrix.codes.shape;
    if (matrix.codes.dtype != "U8" || shape.size() != 4 || shape[3] != kMxfp4Bytes ||
        std::ranges::count(shape, 0) > 0)
      refuse_tensor(matrix.codes, "U8 [experts, out, in / 32, 16]");
    expect_tensor(matrix.scales, "U8", {shape[0], shape[1], shape[2]});
    matrix.stacks = shape[0];
    matrix.rows = shape[0] * shape[1];
    matrix.columns = shape[2] * kMxfp4Columns;
    matrix.turned = true;
    matrices[name] = std::move(matrix);
  }
  return matrices;
}

}  // namespace piton
