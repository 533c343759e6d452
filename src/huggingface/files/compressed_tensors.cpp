#include "huggingface/files/compressed_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPacked = "_packed";
constexpr std::string_view kScale = "_scale";
constexpr std::string_view kZeroPoint = "_zero_point";
constexpr std::string_view kShape = "_shape";
constexpr std::string_view kOrder = "_g_idx";

std::int64_t ceil_of(std::int64_t bits) { return (bits + 31) / 32; }

std::int64_t groups_of(const IntegerFormat& format, std::int64_t columns) {
  return format.group == 0 ? 1 : (columns + format.group - 1) / format.group;
}

const char* strategy_of(const IntegerFormat& format) {
  return format.whole_tensor ? "tensor" : format.group == 0 ? "channel" : "group";
}

// [rows, columns] as weight_shape says.
std::pair<std::int64_t, std::int64_t> said_shape(const HfTensor& tensor) {
  const bool wide = tensor.dtype == "I64";
  if ((!wide && tensor.dtype != "I32") || tensor.shape != std::vector<std::int64_t>{2})
    refuse_tensor(tensor, "I64 [2]");
  std::int64_t sizes[2] = {0, 0};
  if (wide) {
    tensor.file->read_at(tensor.offset, std::as_writable_bytes(std::span(sizes)));
  } else {
    std::int32_t narrow[2];
    tensor.file->read_at(tensor.offset, std::as_writable_bytes(std::span(narrow)));
    std::copy(std::begin(narrow), std::end(narrow), sizes);
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  for (const std::int64_t size : sizes) {
    if (size <= 0 || size >= kMost) {
      throw Error(Fault::kData, "{}: {} says {}, wanted sizes from 1 on",
                  tensor.file->path().string(), tensor.name, size);
    }
  }
  return {sizes[0], sizes[1]};
}

// A scale has [rows, groups]; that of a tensor any shape of one element, those of channels also
// [rows].
void check_scales(const CompressedMatrix& matrix) {
  const IntegerFormat& format = matrix.scheme.format;
  const HfTensor& scales = matrix.scales;
  const std::vector<std::int64_t> wanted = {matrix.rows, groups_of(format, matrix.columns)};
  const std::vector<std::int64_t> flat = {matrix.rows};
  const bool fits = format.whole_tensor
                        ? has_one_element(scales)
                        : scales.shape == wanted || (format.group == 0 && scales.shape == flat);
  if (fits && is_floating(scales)) return;
  refuse_tensor(scales, format.whole_tensor
                            ? "F32, BF16 or F16 [1]"
                            : fmt::format("F32, BF16 or F16 [{}]", fmt::join(wanted, ", ")));
}

bool packs_zeros(const CompressedScheme& scheme) {
  return scheme.packed && !scheme.format.whole_tensor;
}

void check_zeros(const CompressedMatrix& matrix) {
  const CompressedScheme& scheme = matrix.scheme;
  const std::int64_t groups = groups_of(scheme.format, matrix.columns);
  if (packs_zeros(scheme)) {
    return expect_tensor(*matrix.zeros, "I32", {ceil_of(matrix.rows * scheme.format.bits), groups});
  }
  if (matrix.zeros->shape == matrix.scales.shape && matrix.zeros->dtype == "I8") return;
  refuse_tensor(*matrix.zeros, fmt::format("I8 [{}]", fmt::join(matrix.scales.shape, ", ")));
}

// What a stored integer, less its offset, is as one of the held format.
std::int32_t held_code(const IntegerFormat& format, std::int32_t code) {
  return format.bits == 4 ? code + 8 : code;
}

}  // namespace

HfConfig compressed_group(const HfConfig& quantization) {
  const HfConfig groups = quantization.object("config_groups");
  const std::vector<std::string> names = groups.keys();
  if (names.size() != 1) quantization.refuse("config_groups", "one group of modules");
  return groups.object(names.front());
}

std::optional<CompressedScheme> compressed_scheme(const HfConfig& config) {
  if (!config.has(kQuantizationKey)) return std::nullopt;
  const HfConfig said = config.object(kQuantizationKey);
  if (said.word("quant_method") != "compressed-tensors")
    said.refuse("quant_method", "compressed-tensors");
  const HfConfig group = compressed_group(said);
  const std::string format = said.word("format");
  const auto is_known = [](const std::string& word) {
    return word == "pack-quantized" || word == "int-quantized" || word == "naive-quantized";
  };
  if (!is_known(format)) said.refuse("format", "pack-quantized or int-quantized");
  if (group.word("format", format) != format) group.refuse("format", format);
  if (said.has("kv_cache_scheme")) said.refuse("kv_cache_scheme", "null");
  for (const char* key : {"input_activations", "output_activations"}) {
    if (group.has(key)) group.refuse(key, "null: weights alone are quantized");
  }
  const HfConfig weights = group.object("weights");
  CompressedScheme scheme{.packed = format == "pack-quantized"};
  const std::int64_t bits = weights.size("num_bits");
  if (bits != 4 && bits != 8) weights.refuse("num_bits", "4 or 8");
  if (weights.word("type", "int") != "int") weights.refuse("type", "int");
  if (weights.flag("dynamic", false)) weights.refuse("dynamic", "false");
  scheme.format.bits = static_cast<int>(bits);
  scheme.format.symmetric = weights.flag("symmetric", true);
  const std::string strategy = weights.word("strategy");
  if (strategy == "group") {
    scheme.format.group = weights.size("group_size");
    if (bits == 4 && scheme.format.group % 2 != 0)
      weights.refuse("group_size", "an even number, with 4 bits");
  } else if (strategy == "tensor") {
    scheme.format.whole_tensor = true;
  } else if (strategy != "channel") {
    weights.refuse("strategy", "tensor, channel or group");
  }
  return scheme;
}

Json quantization_config(const IntegerFormat& format, const std::vector<std::string>& ignored) {
  Json weights = {{"num_bits", format.bits},
                  {"type", "int"},
                  {"symmetric", format.symmetric},
                  {"strategy", strategy_of(format)},
                  {"group_size", format.group == 0 ? Json() : Json(format.group)},
                  {"dynamic", false}};
  const Json group = {{"targets", {"Linear"}},
                      {"weights", std::move(weights)},
                      {"input_activations", nullptr},
                      {"output_activations", nullptr}};
  return {{"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},
          {"format", "pack-quantized"},
          {"config_groups", {{"group_0", group}}},
          {"ignore", ignored},
          {"kv_cache_scheme", nullptr}};
}

void CompressedMatrix::read_codes(const StoredRow& part, const CodedRow& to) const {
  const IntegerFormat& format = scheme.format;
  const std::int64_t bits = format.bits;
  const bool half = bits == 4;
  if (scheme.packed) {
    PITON_ASSERT(part.column * bits % 8 == 0, "{}: column {}", codes.name, part.column);
    const std::int64_t begin = part.row * ceil_of(columns * bits) * 4 + part.column * bits / 8;
    const std::span to_codes(to.codes, static_cast<std::size_t>((part.columns * bits + 7) / 8));
    codes.file->read_at(codes.offset + begin, to_codes);
    if (!half) {
      for (std::byte& code : to_codes) code ^= std::byte{0x80};
    }
  } else {
    const auto bytes =
        read_elements<std::int8_t>(codes, part.row * columns + part.column, part.columns);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const auto code = static_cast<std::byte>(held_code(format, bytes[i]) & (half ? 15 : 255));
      std::byte& at = to.codes[half ? i / 2 : i];
      at = half && i % 2 == 1 ? at | code << 4 : code;
    }
  }
  const std::int64_t all = groups_of(format, columns);
  const std::int64_t first = format.group == 0 ? 0 : part.column / format.group;
  const std::int64_t count = groups_of(format, part.columns);
  const std::int64_t at = format.whole_tensor ? 0 : part.row * all + first;
  const std::vector<float> read = read_floats(scales, at, count);
  for (std::int64_t i = 0; i < count; ++i) {
    const float scale = read[static_cast<std::size_t>(i)];
    if (scale > 0 && std::isfinite(scale)) continue;
    throw Error(Fault::kData, "{}: {}: scale {} of row {} is {}, wanted a positive number",
                scales.file->path().string(), scales.name, first + i, part.row, scale);
  }
  std::memcpy(to.scales, read.data(), read.size() * sizeof(float));
  if (!has_zeros(*this->format())) return;
  if (!zeros) {
    std::fill(to.zeros, to.zeros + count, 8.0F);
  } else if (packs_zeros(scheme)) {
    const std::int64_t in_word = 32 / bits;
    const auto words =
        read_elements<std::uint32_t>(*zeros, part.row / in_word * all + first, count);
    const auto shift = static_cast<std::uint32_t>(part.row % in_word * bits);
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto stored = static_cast<std::int32_t>(words[i] >> shift & (half ? 15U : 255U));
      to.zeros[i] = static_cast<float>(half ? stored : stored - 128);
    }
  } else {
    const auto points = read_elements<std::int8_t>(*zeros, at, count);
    for (std::size_t i = 0; i < points.size(); ++i)
      to.zeros[i] = static_cast<float>(held_code(format, points[i]));
  }
}

std::map<std::string, CompressedMatrix> take_compressed(const CompressedScheme& scheme,
                                                        std::map<std::string, HfTensor>& named) {
  std::map<std::string, CompressedMatrix> matrices;
  std::vector<std::string> weights;
  for (const auto& [name, tensor] : named) {
    if (name.ends_with(".weight_scale"))
      weights.push_back(name.substr(0, name.size() - kScale.size()));
    if (name.ends_with(kOrder)) {
      throw Error(Fault::kData,
                  "{}: {}: groups of columns in another order (actorder \"group\"), which Piton "
                  "does not read",
                  tensor.file->path().string(), tensor.name);
    }
  }
  for (const std::string& weight : weights) {
    const HfTensor scale = named.at(weight + std::string(kScale));
    const auto take = [&](std::string_view end) {
      return take_tensor(named, weight + std::string(end), scale);
    };
    CompressedMatrix matrix;
    matrix.scheme = scheme;
    if (scheme.packed) {
      matrix.codes = take(kPacked);
      std::tie(matrix.rows, matrix.columns) = said_shape(take(kShape));
      expect_tensor(matrix.codes, "I32",
                    {matrix.rows, ceil_of(matrix.columns * scheme.format.bits)});
    } else {
      matrix.codes = take("");
      if (matrix.codes.dtype != "I8" || matrix.codes.shape.size() != 2 ||
          std::ranges::count(matrix.codes.shape, 0) > 0)
        refuse_tensor(matrix.codes, "I8 [out, in]");
      matrix.rows = matrix.codes.shape[0];
      matrix.columns = matrix.codes.shape[1];
    }
    if (!scheme.format.symmetric) {
      matrix.zeros = take(kZeroPoint);
    } else if (!scheme.packed && named.contains(weight + std::string(kZeroPoint))) {
      static_cast<void>(take(kZeroPoint));  // zeros, which older versions wrote
    }
    matrix.scales = take(kScale);
    check_scales(matrix);
    if (matrix.zeros) check_zeros(matrix);
    matrices[weight] = std::move(matrix);
  }
  return matrices;
}

std::vector<SafetensorsEntry> compressed_entries(const IntegerFormat& format,
                                                 const std::string& module, std::int64_t rows,
                                                 std::int64_t columns) {
  const std::string weight = module + ".weight";
  const std::int64_t groups = groups_of(format, columns);
  std::vector<std::int64_t> scales = {rows, groups};
  if (format.whole_tensor) scales = {1};
  std::vector<SafetensorsEntry> entries = {
      {.name = weight + std::string(kPacked),
       .dtype = "I32",
       .shape = {rows, ceil_of(columns * format.bits)}},
      {.name = weight + std::string(kScale),
       .dtype = std::string(safetensors_name(format.scale)),
       .shape = scales},
      {.name = weight + std::string(kShape), .dtype = "I64", .shape = {2}}};
  if (!format.symmetric && format.whole_tensor) {
    entries.push_back({.name = weight + std::string(kZeroPoint), .dtype = "I8", .shape = {1}});
  } else if (!format.symmetric) {
    entries.push_back({.name = weight + std::string(kZeroPoint),
                       .dtype = "I32",
                       .shape = {ceil_of(rows * format.bits), groups}});
  }
  return entries;
}

}  // namespace piton
