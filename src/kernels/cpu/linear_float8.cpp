// Products in FP8 (kernels/linear.h). This processor has none: numbers of 8 bits are exact in bf16,
// so the factors become rows of bf16, and the products are those of bf16.
//
// Where scales are powers of two, q / s is exact in bf16 as well, unless it is below its smallest
// normal number. A scale of a whole factor is not in its rows: the sums are multiplied with both.
#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

#include "device/host_device.h"
#include "kernels/cpu/linear_tiles.h"
#include "kernels/linear.h"

namespace piton::cpu {
namespace {

// Of CpuContext::float8.
enum Place : std::uint8_t { kLeft, kRight, kSums };

Tensor memory(CpuContext& context, Place place, DType dtype, std::int64_t rows,
              std::int64_t columns) {
  return memory_in(context.float8[place], dtype, {rows, columns});
}

// Rows and columns of a factor that have a scale together.
struct Blocks {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};
constexpr Blocks kAlongRow{1, kFloat8Block};
constexpr Blocks kAlongColumn{kFloat8Block, 1};
constexpr Blocks kSquare{kFloat8Block, kFloat8Block};

struct Rounded {
  Tensor rows;        // bf16
  float inverse = 1;  // the factor is `rows` times this
};

BFloat16* row_of(const Tensor& tensor, std::int64_t row) {
  return reinterpret_cast<BFloat16*>(at(tensor, row, 0));
}

// Bits of the size of x, 0 if it is not finite. Sizes are in the order of their bits.
std::uint32_t finite_size(BFloat16 x) {
  const std::uint32_t size = x.bits & 0x7FFFU;
  return size < 0x7F80U ? size : 0;
}

float number_of(std::uint32_t size) { return std::bit_cast<float>(size << 16); }

// The largest of `largest` and the sizes of x.
std::uint32_t largest_size(std::uint32_t largest, const BFloat16* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, finite_size(x[i]));
  return largest;
}

// What `scale` brings to the format, times `after`; exact in bf16.
template <Float8Format kFormat>
BFloat16 rounded(BFloat16 x, float scale, float after) {
  const float result = rounded_to_float8(to_float(x) * scale, kFormat) * after;
  return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(result) >> 16)};
}

// use(std::integral_constant<Float8Format>): loops have the format as a constant.
template <typename Use>
void with_format(Float8Format format, const Use& use) {
  if (format == Float8Format::kE4M3)
    return use(std::integral_constant<Float8Format, Float8Format::kE4M3>{});
  use(std::integral_constant<Float8Format, Float8Format::kE5M2>{});
}

void round_row(BFloat16* to, const BFloat16* x, std::int64_t n, Float8Format format, float scale,
               float after) {
  with_format(format, [&](auto constant) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = rounded<constant()>(x[i], scale, after);
  });
}

Rounded round_whole(CpuContext& context, const Tensor& x, Float8Format format, Place place) {
  constexpr std::int64_t kRows = 64;
  const std::int64_t n = x.dim(1);
  Rounded rounded{.rows = memory(context, place, DType::kBF16, x.dim(0), n)};
  std::vector<std::uint32_t> largest(static_cast<std::size_t>(tiles(x.dim(0), kRows)));
  context.ranges(x.dim(0), kRows, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t most = 0;
    for (std::int64_t row = begin; row < end; ++row) most = largest_size(most, row_of(x, row), n);
    largest[static_cast<std::size_t>(begin / kRows)] = most;
  });
  const float most = number_of(std::ranges::max(largest));
  const float scale = float8_scale(most, format, /*power_of_two=*/false);
  rounded.inverse = 1 / scale;
  context.ranges(x.dim(0), kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      round_row(row_of(rounded.rows, row), row_of(x, row), n, format, scale, 1);
  });
  return rounded;
}

// Columns that have a scale each: of the rows [begin, end).
void round_columns(const Tensor& to, const Tensor& x, Float8Format format, std::int64_t begin,
                   std::int64_t end) {
  const auto n = static_cast<std::size_t>(x.dim(1));
  std::vector<std::uint32_t> sizes(n);
  for (std::int64_t row = begin; row < end; ++row) {
    const BFloat16* from = row_of(x, row);
    for (std::size_t j = 0; j < n; ++j) sizes[j] = std::max(sizes[j], finite_size(from[j]));
  }
  std::vector<float> scales(n);
  std::vector<float> inverses(n);
  for (std::size_t j = 0; j < n; ++j) {
    scales[j] = float8_scale(number_of(sizes[j]), format, /*power_of_two=*/true);
    inverses[j] = 1 / scales[j];
  }
  with_format(format, [&](auto constant) {
    for (std::int64_t row = begin; row < end; ++row) {
      const BFloat16* from = row_of(x, row);
      BFloat16* rows = row_of(to, row);
      for (std::size_t j = 0; j < n; ++j)
        rows[j] = rounded<constant()>(from[j], scales[j], inverses[j]);
    }
  });
}

Rounded round_blocks(CpuContext& context, const Tensor& x, Float8Format format,
                     const Blocks& blocks, Place place) {
  const std::int64_t n = x.dim(1);
  Rounded rounded{.rows = memory(context, place, DType::kBF16, x.dim(0), n)};
  const std::int64_t grain = blocks.rows == 1 ? grain_of(n * 2) : blocks.rows;
  context.ranges(x.dim(0), grain, [&](std::int64_t begin, std::int64_t end) {
    if (blocks.columns == 1) return round_columns(rounded.rows, x, format, begin, end);
    for (std::int64_t row = begin; row < end; row += blocks.rows) {
      const std::int64_t last = std::min(row + blocks.rows, end);
      for (std::int64_t j = 0; j < n; j += blocks.columns) {
        const std::int64_t size = std::min(blocks.columns, n - j);
        std::uint32_t most = 0;
        for (std::int64_t i = row; i < last; ++i) most = largest_size(most, row_of(x, i) + j, size);
        const float scale = float8_scale(number_of(most), format, /*power_of_two=*/true);
        for (std::int64_t i = row; i < last; ++i)
          round_row(row_of(rounded.rows, i) + j, row_of(x, i) + j, size, format, scale, 1 / scale);
      }
    }
  });
  return rounded;
}

Rounded rounded_factor(CpuContext& context, const Tensor& x, Float8Recipe recipe,
                       Float8Format format, const Blocks& blocks, Place place) {
  return recipe == Float8Recipe::kBlockwise ? round_blocks(context, x, format, blocks, place)
                                            : round_whole(context, x, format, place);
}

// The weight of a call, rounded. Returns 1 / its scale.
float round_weight(CpuContext& context, WeightView& weight, Float8Recipe recipe) {
  Rounded rounded =
      rounded_factor(context, weight.tensor, recipe, Float8Format::kE4M3, kSquare, kRight);
  weight.tensor = std::move(rounded.rows);
  return rounded.inverse;
}

// y = `sums` * factor + bias with the epilogue. Sums are overwritten.
void finish_scaled(CpuContext& context, const Tensor& sums, float factor, const Tensor& y,
                   const Tensor& bias, const Epilogue& epilogue) {
  const std::int64_t n = sums.dim(1);
  context.ranges(sums.dim(0), grain_of(n * 4), [&](std::int64_t begin, std::int64_t end) {
    const auto* added = bias.defined() ? bias.data<BFloat16>() : nullptr;
    for (std::int64_t row = begin; row < end; ++row) {
      auto* sum = reinterpret_cast<float*>(at(sums, row, 0));
      for (std::int64_t j = 0; j < n; ++j)
        sum[j] = sum[j] * factor + (added != nullptr ? to_float(added[j]) : 0);
      if (epilogue.given()) {
        epilogue.finish(context, y, sum, n, row, 0, 1, n);
      } else {
        context.vector.convert(at(y, row, 0), type_of(y.dtype()), sum, Type::kF32, n);
      }
    }
  });
}

}  // namespace

void multiply_in_float8(CpuContext& context, const LinearForward& call) {
  const Float8Recipe recipe = call.float8.recipe;
  LinearForward plain = call;
  plain.float8 = {};
  const Rounded x = rounded_factor(context, call.x, recipe, Float8Format::kE4M3, kAlongRow, kLeft);
  plain.x = x.rows;
  const float factor = x.inverse * round_weight(context, plain.weight, recipe);
  if (recipe == Float8Recipe::kBlockwise) return execute(context, plain);
  const Tensor sums = memory(context, kSums, DType::kF32, call.x.dim(0), call.weight.out);
  execute(context, LinearForward{.y = sums, .x = plain.x, .weight = plain.weight});
  finish_scaled(context, sums, factor, call.y, call.bias,
                {call.residual, call.activation, call.preactivation});
}

void multiply_in_float8(CpuContext& context, const LinearBackwardInput& call) {
  const Float8Recipe recipe = call.float8.recipe;
  LinearBackwardInput plain = call;
  plain.float8 = {};
  const Rounded dy =
      rounded_factor(context, call.dy, recipe, call.float8.gradients, kAlongRow, kLeft);
  plain.dy = dy.rows;
  const float factor = dy.inverse * round_weight(context, plain.weight, recipe);
  if (recipe == Float8Recipe::kBlockwise) return execute(context, plain);
  const Tensor sums = memory(context, kSums, DType::kF32, call.dy.dim(0), call.weight.in);
  execute(context, LinearBackwardInput{.dx = sums, .dy = plain.dy, .weight = plain.weight});
  finish_scaled(context, sums, factor, call.dx, {}, {.residual = call.residual});
}

void add_in_float8(CpuContext& context, const LinearBackwardWeight& call) {
  const Float8Recipe recipe = call.float8.recipe;
  const Rounded dy =
      rounded_factor(context, call.dy, recipe, call.float8.gradients, kAlongColumn, kLeft);
  const Rounded x =
      rounded_factor(context, call.x, recipe, Float8Format::kE4M3, kAlongColumn, kRight);
  LinearBackwardWeight plain{
      .dweight = call.dweight, .dy = dy.rows, .x = x.rows, .overwrites = call.overwrites};
  if (recipe == Float8Recipe::kBlockwise) return execute(context, plain);
  const std::int64_t n = call.dweight.dim(1);
  const float factor = dy.inverse * x.inverse;
  const Tensor sums = memory(context, kSums, DType::kF32, call.dweight.dim(0), n);
  plain.dweight = sums;
  plain.overwrites = true;
  execute(context, plain);
  context.ranges(sums.dim(0), grain_of(n * 4), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto* sum = reinterpret_cast<const float*>(at(sums, row, 0));
      auto* to = reinterpret_cast<float*>(at(call.dweight, row, 0));
      for (std::int64_t j = 0; j < n; ++j) to[j] = (call.overwrites ? 0 : to[j]) + factor * sum[j];
    }
  });
}

}  // namespace piton::cpu
