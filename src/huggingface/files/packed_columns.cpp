#include "huggingface/files/packed_columns.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::string_view kPackedCodes = ".qweight";
constexpr std::size_t kKept = 3;  // the matrices of attention that are read in turns

std::string lower(std::string word) {
  for (char& c : word) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return word;
}

std::int64_t group_size(const HfConfig& said, const std::string& key) {
  const double size = said.number(key, 128.0);
  if (size == -1) return 0;
  if (size < 1 || size >= 2147483648.0 || size != std::floor(size))
    said.refuse(key, "a positive integer, or -1");
  return static_cast<std::int64_t>(size);
}

// Number `index` of those that words have in a row of bits, from the lowest on; words are `stride`
// apart.
std::uint32_t number_of(const std::uint32_t* words, std::int64_t stride, std::int64_t index,
                        int bits) {
  const std::int64_t bit = index * bits;
  const std::uint32_t* const word = words + bit / 32 * stride;
  const auto shift = static_cast<int>(bit % 32);
  std::uint32_t number = *word >> shift;
  if (shift + bits > 32) number |= word[stride] << (32 - shift);
  return number & ((1U << bits) - 1);
}

// Number `index` of a row of words of AWQ.
std::uint32_t awq_number(const std::uint32_t* words, std::int64_t index) {
  constexpr std::array<int, 8> kPlaces = {0, 4, 1, 5, 2, 6, 3, 7};
  return words[index / 8] >> (kPlaces[static_cast<std::size_t>(index % 8)] * 4) & 15U;
}

// The numbers of a row of a matrix.
class PackedRow {
 public:
  PackedRow(const PackedColumnsMatrix& matrix, const PackedWords& words, std::int64_t row)
      : matrix_(matrix), words_(words), row_(row) {}

  std::int32_t code(std::int64_t column) const {
    const std::uint32_t* const words = words_.codes.data();
    if (matrix_.scheme.awq)
      return static_cast<std::int32_t>(awq_number(words + column * (matrix_.rows / 8), row_));
    return static_cast<std::int32_t>(
        number_of(words + row_, matrix_.rows, column, matrix_.scheme.bits));
  }
  std::int32_t zero(std::int64_t group) const {
    const std::uint32_t* const words = words_.zeros.data() + group * matrix_.zeros.shape[1];
    const std::uint32_t stored = matrix_.scheme.awq
                                     ? awq_number(words, row_)
                                     : number_of(words, 1, row_, matrix_.scheme.bits);
    return static_cast<std::int32_t>(stored) + matrix_.scheme.zero_offset;
  }
  float scale(std::int64_t group) const {
    return words_.scales[static_cast<std::size_t>(group * matrix_.rows + row_)];
  }

 private:
  const PackedColumnsMatrix& matrix_;
  const PackedWords& words_;
  std::int64_t row_;
};

// Empty if the groups are in order.
std::vector<std::int32_t> read_order(const PackedColumnsMatrix& matrix, const HfTensor& tensor) {
  expect_tensor(tensor, "I32", {matrix.columns});
  auto order = read_elements<std::int32_t>(tensor, 0, matrix.columns);
  const std::int64_t group = matrix.scheme.group == 0 ? matrix.columns : matrix.scheme.group;
  bool in_order = true;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 0 || order[i] >= matrix.groups()) {
      throw Error(Fault::kData, "{}: {}: the group of column {} is {}, wanted 0 to {}",
                  tensor.file->path().string(), tensor.name, i, order[i], matrix.groups() - 1);
    }
    in_order = in_order && order[i] == static_cast<std::int64_t>(i) / group;
  }
  if (in_order) order.clear();
  return order;
}

// Rows and columns from the shape of the codes.
void set_sizes(PackedColumnsMatrix& matrix) {
  const PackedScheme& scheme = matrix.scheme;
  const HfTensor& codes = matrix.codes;
  const std::string wanted =
      scheme.awq ? "I32 [in, out / 8]" : fmt::format("I32 [in {} / 32, out]", scheme.bits);
  if (codes.dtype != "I32" || codes.shape.size() != 2) refuse_tensor(codes, wanted);
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  for (const std::int64_t size : codes.shape) {
    if (size < 1 || size >= kMost) refuse_tensor(codes, wanted);
  }
  matrix.rows = scheme.awq ? codes.shape[1] * 8 : codes.shape[1];
  matrix.columns = scheme.awq ? codes.shape[0] : codes.shape[0] * 32 / scheme.bits;
  if (!scheme.awq && codes.shape[0] * 32 % scheme.bits != 0) refuse_tensor(codes, wanted);
  if (matrix.columns >= kMost || matrix.rows >= kMost) refuse_tensor(codes, wanted);
}

PackedColumnsMatrix take_one(const PackedScheme& scheme, const std::string& module,
                             std::map<std::string, HfTensor>& named) {
  PackedColumnsMatrix matrix;
  matrix.scheme = scheme;
  matrix.codes = named.extract(module + std::string(kPackedCodes)).mapped();
  set_sizes(matrix);
  matrix.zeros = take_tensor(named, module + ".qzeros", matrix.codes);
  matrix.scales = take_tensor(named, module + ".scales", matrix.codes);
  const std::vector<std::int64_t> scales = {matrix.groups(), matrix.rows};
  if (matrix.scales.shape != scales || !is_floating(matrix.scales))
    refuse_tensor(matrix.scales, fmt::format("F16, BF16 or F32 [{}]", fmt::join(scales, ", ")));
  const std::int64_t zero_words = (matrix.rows * scheme.bits + 31) / 32;
  expect_tensor(matrix.zeros, "I32", {matrix.groups(), zero_words});
  if (const auto order = named.find(module + ".g_idx"); order != named.end() && !scheme.awq)
    matrix.order = read_order(matrix, named.extract(order).mapped());
  return matrix;
}

}  // namespace

PackedScheme packed_scheme(const HfConfig& config) {
  const HfConfig said = config.object(kQuantizationKey);
  PackedScheme scheme{.awq = said.word("quant_method") == "awq"};
  const bool old_names = scheme.awq && !said.has("bits");
  const std::string bits_key = old_names && said.has("w_bit") ? "w_bit" : "bits";
  const std::int64_t bits =
      said.size(bits_key, scheme.awq ? std::optional<std::int64_t>(4) : std::nullopt);
  const bool known = scheme.awq ? bits == 4 : bits == 2 || bits == 3 || bits == 4 || bits == 8;
  if (!known) said.refuse(bits_key, scheme.awq ? "4" : "2, 3, 4 or 8");
  scheme.bits = static_cast<int>(bits);
  scheme.group = group_size(said, said.has("q_group_size") ? "q_group_size" : "group_size");
  if (scheme.awq) {
    const std::string key = said.has("version") ? "version" : "format";
    if (lower(said.word(key, "gemm")) != "gemm") said.refuse(key, "gemm");
    if (!said.flag("zero_point", true)) said.refuse("zero_point", "true");
    return scheme;
  }
  const std::string key = said.has("checkpoint_format") ? "checkpoint_format" : "format";
  const std::string format = said.word(key, "gptq");
  if (format != "gptq" && format != "gptq_v2") said.refuse(key, "gptq or gptq_v2");
  if (said.flag("is_marlin_format", false)) said.refuse("is_marlin_format", "false");
  scheme.zero_offset = format == "gptq" ? 1 : 0;
  return scheme;
}

std::shared_ptr<const PackedWords> PackedCache::words_of(const PackedColumnsMatrix& matrix) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [name, words] : newest_last_) {
    if (name == matrix.codes.name) return words;
  }
  PackedWords words{.codes = read_elements<std::uint32_t>(
                        matrix.codes, 0, matrix.codes.shape[0] * matrix.codes.shape[1]),
                    .zeros = read_elements<std::uint32_t>(
                        matrix.zeros, 0, matrix.zeros.shape[0] * matrix.zeros.shape[1]),
                    .scales = read_floats(matrix.scales, 0, matrix.groups() * matrix.rows)};
  for (std::size_t i = 0; i < words.scales.size(); ++i) {
    if (std::isfinite(words.scales[i])) continue;
    const auto rows = static_cast<std::size_t>(matrix.rows);
    throw Error(Fault::kData, "{}: {}: scale [{}, {}] is {}, wanted a finite number",
                matrix.scales.file->path().string(), matrix.scales.name, i / rows, i % rows,
                words.scales[i]);
  }
  if (newest_last_.size() == kKept) newest_last_.erase(newest_last_.begin());
  newest_last_.emplace_back(matrix.codes.name,
                            std::make_shared<const PackedWords>(std::move(words)));
  return newest_last_.back().second;
}

std::int64_t PackedColumnsMatrix::groups() const {
  return scheme.group == 0 ? 1 : (columns - 1) / scheme.group + 1;
}

std::optional<CodeFormat> PackedColumnsMatrix::format() const {
  const bool half = scheme.bits <= 4;
  if (!order.empty() || (half && scheme.group % 2 != 0)) return std::nullopt;
  return CodeFormat{.rule = half ? Quantization::kInt4Zeros : Quantization::kInt8Zeros,
                    .group = scheme.group};
}

void PackedColumnsMatrix::read_codes(const StoredRow& part, const CodedRow& to) const {
  const std::shared_ptr<const PackedWords> words = cache->words_of(*this);
  const PackedRow row(*this, *words, part.row);
  const bool half = scheme.bits <= 4;
  const std::int32_t middle = half ? 0 : 128;  // int8-zeros are signed
  for (std::int64_t i = 0; i < part.columns; ++i) {
    const auto code = static_cast<std::byte>(row.code(part.column + i) - middle);
    std::byte& at = to.codes[half ? i / 2 : i];
    at = half && i % 2 == 1 ? at | code << 4 : code;
  }
  const std::int64_t size = scheme.group == 0 ? columns : scheme.group;
  const std::int64_t first = part.column / size;
  for (std::int64_t i = 0; i < (part.columns - 1) / size + 1; ++i) {
    const float scale = row.scale(first + i);
    std::memcpy(to.scales + i * 4, &scale, 4);
    to.zeros[i] = static_cast<float>(row.zero(first + i) - middle);
  }
}

void PackedColumnsMatrix::read_values(std::int64_t row, std::span<float> values) const {
  const std::shared_ptr<const PackedWords> words = cache->words_of(*this);
  const PackedRow numbers(*this, *words, row);
  std::vector<float> row_scales, row_zeros;
  for (std::int64_t group = 0; group < groups(); ++group) {
    row_scales.push_back(numbers.scale(group));
    row_zeros.push_back(static_cast<float>(numbers.zero(group)));
  }
  const std::int64_t size = scheme.group == 0 ? columns : scheme.group;
  for (std::int64_t i = 0; i < columns; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const auto group =
        order.empty() ? static_cast<std::size_t>(i / size) : static_cast<std::size_t>(order[at]);
    values[at] = row_scales[group] * (static_cast<float>(numbers.code(i)) - row_zeros[group]);
  }
}

QuantizedMatrices take_packed(const PackedScheme& scheme, std::map<std::string, HfTensor>& named) {
  std::vector<std::string> modules;
  for (const auto& [name, tensor] : named) {
    if (name.ends_with(kPackedCodes))
      modules.push_back(name.substr(0, name.size() - kPackedCodes.size()));
  }
  const auto cache = std::make_shared<PackedCache>();
  QuantizedMatrices matrices;
  for (const std::string& module : modules) {
    auto matrix = std::make_unique<PackedColumnsMatrix>(take_one(scheme, module, named));
    matrix->cache = cache;
    matrices[module + ".weight"] = std::move(matrix);
  }
  return matrices;
}

}  // namespace piton
