// Expands small integers with scales into plain rows.
#include <algorithm>
#include <array>

#include "kernels/cpu/linear_tiles.h"

namespace piton::cpu {
namespace {

// Multiples of `step`; sums of eight products with 16-bit integers fit in 32 bits.
struct NibbleTable {
  std::array<float, 16> values{};
  std::array<std::int16_t, 16> integers{};
  float step = 1;
};

constexpr NibbleTable steps_from(int zero) {
  NibbleTable table;
  for (int code = 0; code < 16; ++code) {
    table.values[code] = static_cast<float>(code - zero);
    table.integers[code] = static_cast<std::int16_t>(code - zero);
  }
  return table;
}

constexpr NibbleTable nf4_table() {
  constexpr float kLargest = 8191;
  NibbleTable table;
  table.step = 1 / kLargest;
  for (int code = 0; code < 16; ++code) {
    const float exact = kNf4Values[code] * kLargest;
    table.values[code] = kNf4Values[code];
    table.integers[code] = static_cast<std::int16_t>(exact < 0 ? exact - 0.5F : exact + 0.5F);
  }
  return table;
}

const NibbleTable& table_of(const WeightCodes& codes) {
  static constexpr NibbleTable kCentered = steps_from(8);
  static constexpr NibbleTable kPlain = steps_from(0);
  static constexpr NibbleTable kNf4 = nf4_table();
  if (codes.kind == CodeKind::kNf4) return kNf4;
  return codes.zeros.defined() || codes.minima.defined() ? kPlain : kCentered;
}

// Element `at` of scales or minima, counted over all rows; `blocks`: the factors of bytes.
float scale_at(const WeightCodes& codes, const Tensor& scales, const Tensor& blocks,
               std::int64_t at) {
  if (blocks.defined()) {
    const float byte = static_cast<std::int8_t>(scales.data<std::uint8_t>()[at]);
    return byte * blocks.data<float>()[at * codes.group / kScaleBlock];
  }
  if (scales.dtype() == DType::kF16) return to_float(scales.data<Float16>()[at]);
  return scales.data<float>()[at];
}

int code_at(const WeightCodes& codes, const std::byte* row, std::int64_t column) {
  if (codes.kind == CodeKind::kInt8) return static_cast<std::int8_t>(row[column]);
  const auto pair = std::to_integer<int>(row[column / 2]);
  return column % 2 == 0 ? pair & 15 : pair >> 4;
}

void expand_wide(const WeightCodes& codes, std::int64_t row, std::int64_t in, double* values) {
  const CodedRows w = coded_rows(codes, in);
  const std::byte* bytes = codes.codes.raw() + row * w.stride;
  for (std::int64_t column = 0; column < in; ++column) {
    const std::int64_t at = row * w.groups + column / codes.group;
    const double scale = scale_at(codes, codes.scales, codes.block_scales, at);
    const int code = code_at(codes, bytes, column);
    const double value = w.nibbles ? w.values[code] : static_cast<float>(code);
    values[column] = scale * (value - (w.zeros != nullptr ? w.zeros[at] : 0.0F));
    if (codes.minima.defined())
      values[column] -= scale_at(codes, codes.minima, codes.block_minima, at);
  }
}

}  // namespace

CodedRows coded_rows(const WeightCodes& codes, std::int64_t in) {
  const NibbleTable& table = table_of(codes);
  const bool nested = codes.block_scales.defined();
  const auto blocks_of = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.data<float>() : nullptr;
  };
  return {.codes = reinterpret_cast<const std::uint8_t*>(codes.codes.raw()),
          .stride = code_bytes(codes.kind, in),
          .nibbles = is_half_byte(codes.kind),
          .columns = in,
          .group = codes.group,
          .groups = tiles(in, codes.group),
          .scales = codes.scales.raw(),
          .scale_type = nested ? Type::kF32 : type_of(codes.scales.dtype()),
          .zeros = codes.zeros.defined() ? codes.zeros.data<float>() : nullptr,
          .minima = codes.minima.defined() ? codes.minima.raw() : nullptr,
          .block_scales = blocks_of(codes.block_scales),
          .block_minima = blocks_of(codes.block_minima),
          .values = table.values.data(),
          .zero = codes.kind == CodeKind::kInt4 && !codes.minima.defined() ? 8.0F : 0.0F,
          .is_table = codes.kind == CodeKind::kNf4,
          .integers = table.integers.data(),
          .step = codes.kind == CodeKind::kNf4 ? table.step : 1};
}

void subtract_minima(const WeightCodes& codes, std::int64_t row, std::int64_t first, float* values,
                     std::int64_t count) {
  if (!codes.minima.defined()) return;
  const std::int64_t of_row = row * codes.minima.dim(1);
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t group = (first + i) / codes.group;
    const std::int64_t end = std::min(count, (group + 1) * codes.group - first);
    const float minimum = scale_at(codes, codes.minima, codes.block_minima, of_row + group);
    for (; i < end; ++i) values[i] -= minimum;
  }
}

void execute(CpuContext& context, const ExpandWeight& call) {
  const std::int64_t in = call.rows.dim(1);
  const DType dtype = call.rows.dtype();
  const CodedRows w = coded_rows(call.codes, in);
  context.ranges(call.rows.dim(0), grain_of(in * size_bytes(dtype)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     std::byte* to = at(call.rows, row, 0);
                     if (dtype == DType::kF64) {
                       expand_wide(call.codes, row, in, reinterpret_cast<double*>(to));
                       continue;
                     }
                     auto* values = reinterpret_cast<float*>(context.scratch.own(in * 4));
                     context.codes.expand(values, w, row, 0, in);
                     subtract_minima(call.codes, row, 0, values, in);
                     context.vector.convert(to, type_of(dtype), values, Type::kF32, in);
                   }
                 });
}

}  // namespace piton::cpu
