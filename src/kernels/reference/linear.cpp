// y = x W^T + bias and its gradients.
#include "kernels/linear.h"

#include <algorithm>
#include <cmath>

#include "kernels/experts.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

double code_at(const WeightCodes& codes, const Values& bytes, std::int64_t row,
               std::int64_t column) {
  if (codes.kind == CodeKind::kInt8) {
    const double byte = bytes(row, column);
    return byte < 128 ? byte : byte - 256;
  }
  const auto byte = static_cast<int>(bytes(row, column / 2));
  return column % 2 == 0 ? byte % 16 : byte / 16;
}

// Scales or minima [out, groups], times the numbers of their blocks, if there are some.
Values whole_scales(const Tensor& scales, const Tensor& blocks, std::int64_t group) {
  Values values = Values::read(scales);
  if (!blocks.defined()) return values;
  const Values of_blocks = Values::read(blocks);
  for (std::int64_t row = 0; row < scales.dim(0); ++row) {
    for (std::int64_t g = 0; g < scales.dim(1); ++g) {
      const double byte = values(row, g);
      values(row, g) = (byte < 128 ? byte : byte - 256) * of_blocks(row, g * group / kScaleBlock);
    }
  }
  return values;
}

Values expanded(const WeightCodes& codes, std::int64_t out, std::int64_t in) {
  const Values bytes = Values::read(codes.codes);
  const Values scales = whole_scales(codes.scales, codes.block_scales, codes.group);
  const Values zeros = Values::read(codes.zeros);
  const Values minima = whole_scales(codes.minima, codes.block_minima, codes.group);
  Values rows(Shape{out, in});
  for (std::int64_t row = 0; row < out; ++row) {
    for (std::int64_t column = 0; column < in; ++column) {
      const std::int64_t group = column / codes.group;
      const double code = code_at(codes, bytes, row, column);
      if (codes.kind == CodeKind::kNf4) {
        rows(row, column) = scales(row, group) * kNf4Values[static_cast<int>(code)];
        continue;
      }
      if (minima.given()) {
        rows(row, column) = scales(row, group) * code - minima(row, group);
        continue;
      }
      const double zero = zeros.given() ? zeros(row, group) : codes.kind == CodeKind::kInt4 ? 8 : 0;
      rows(row, column) = scales(row, group) * (code - zero);
    }
  }
  return rows;
}

Values rows_of(const WeightView& weight) {
  if (weight.form == WeightForm::kCodes) return expanded(weight.codes, weight.out, weight.in);
  PITON_ASSERT(weight.form == WeightForm::kRows, "reference kernels read no packed weight");
  return Values::read(weight.tensor);
}

// Blocks of a factor that have a scale each.
struct Blocks {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};
constexpr Blocks kAlongRow{1, kFloat8Block};
constexpr Blocks kAlongColumn{kFloat8Block, 1};
constexpr Blocks kSquare{kFloat8Block, kFloat8Block};

// Rounds one block, from (row, column) on.
void round_block(Values& values, std::int64_t row, std::int64_t column, const Blocks& block,
                 Float8Format format, bool power_of_two) {
  const std::int64_t rows = std::min(row + block.rows, values.shape()[0]);
  const std::int64_t columns = std::min(column + block.columns, values.shape()[1]);
  double largest = 0;
  for (std::int64_t i = row; i < rows; ++i) {
    for (std::int64_t j = column; j < columns; ++j) {
      if (std::isfinite(values(i, j))) largest = std::max(largest, std::fabs(values(i, j)));
    }
  }
  const float scale = float8_scale(static_cast<float>(largest), format, power_of_two);
  const float inverse = 1 / scale;
  for (std::int64_t i = row; i < rows; ++i) {
    for (std::int64_t j = column; j < columns; ++j) {
      const float scaled = static_cast<float>(values(i, j)) * scale;
      values(i, j) = double{rounded_to_float8(scaled, format)} * inverse;
    }
  }
}

// A factor of a product as the recipe rounds it. `blocks`: under blockwise.
Values factor(Values values, const Float8Products& float8, Float8Format format,
              const Blocks& blocks) {
  if (!float8.given() || values.shape()[0] == 0 || values.shape()[1] == 0) return values;
  const bool blockwise = float8.recipe == Float8Recipe::kBlockwise;
  const Blocks block = blockwise ? blocks : Blocks{values.shape()[0], values.shape()[1]};
  for (std::int64_t row = 0; row < values.shape()[0]; row += block.rows) {
    for (std::int64_t column = 0; column < values.shape()[1]; column += block.columns)
      round_block(values, row, column, block, format, blockwise);
  }
  return values;
}

}  // namespace

void execute(const LinearForward& call) {
  if (call.first_rows.defined())
    return for_each_expert(call, call.x.dim(0), [](const LinearForward& part) { execute(part); });
  const Values x = factor(Values::read(call.x), call.float8, Float8Format::kE4M3, kAlongRow);
  const Values w = factor(rows_of(call.weight), call.float8, Float8Format::kE4M3, kSquare);
  const Values bias = Values::read(call.bias);
  const Values residual = Values::read(call.residual);
  Values y(call.y.shape());
  Values preactivation(call.y.shape());
  for (std::int64_t row = 0; row < call.x.dim(0); ++row) {
    for (std::int64_t out = 0; out < call.weight.out; ++out) {
      double sum = 0;
      for (std::int64_t in = 0; in < call.weight.in; ++in) sum += x(row, in) * w(out, in);
      sum += bias.given() ? bias(out) : 0;
      sum += residual.given() ? residual(row, out) : 0;
      preactivation(row, out) = sum;
      y(row, out) = call.activation ? activated(*call.activation, sum) : sum;
    }
  }
  y.write(call.y);
  if (call.preactivation.defined()) preactivation.write(call.preactivation);
}

void execute(const GatedLinear& call) {
  const Tensor gate_up = host_tensor(call.x.dtype(), {call.x.dim(0), call.weight.out});
  execute(call.product(gate_up));
  execute(call.end(gate_up));
}

void execute(const LinearBackwardInput& call) {
  if (call.first_rows.defined())
    return for_each_expert(call, call.dy.dim(0),
                           [](const LinearBackwardInput& part) { execute(part); });
  const Values dy = factor(Values::read(call.dy), call.float8, call.float8.gradients, kAlongRow);
  const Values w = factor(rows_of(call.weight), call.float8, Float8Format::kE4M3, kSquare);
  Values dx = call.residual.defined() ? Values::read(call.residual) : Values(call.dx.shape());
  for (std::int64_t row = 0; row < call.dy.dim(0); ++row) {
    for (std::int64_t out = 0; out < call.weight.out; ++out) {
      for (std::int64_t in = 0; in < call.weight.in; ++in) dx(row, in) += dy(row, out) * w(out, in);
    }
  }
  dx.write(call.dx);
}

void execute(const LinearBackwardWeight& call) {
  if (call.first_rows.defined())
    return for_each_expert(call, call.x.dim(0),
                           [](const LinearBackwardWeight& part) { execute(part); });
  const Values whole_dy = Values::read(call.dy);
  const Values dy = factor(whole_dy, call.float8, call.float8.gradients, kAlongColumn);
  const Values x = factor(Values::read(call.x), call.float8, Float8Format::kE4M3, kAlongColumn);
  Values sums(call.dweight.shape());
  for (std::int64_t row = 0; row < call.x.dim(0); ++row) {
    for (std::int64_t out = 0; out < call.dy.dim(1); ++out) {
      for (std::int64_t in = 0; in < call.x.dim(1); ++in)
        sums(out, in) += dy(row, out) * x(row, in);
    }
  }
  Values dweight = call.overwrites ? Values(call.dweight.shape()) : Values::read(call.dweight);
  for (std::int64_t out = 0; out < call.dy.dim(1); ++out) {
    for (std::int64_t in = 0; in < call.x.dim(1); ++in) dweight(out, in) += sums(out, in);
  }
  dweight.write(call.dweight);

  if (!call.dbias.defined()) return;
  Values dbias = Values::read(call.dbias);
  for (std::int64_t out = 0; out < call.dy.dim(1); ++out) {
    double sum = 0;
    for (std::int64_t row = 0; row < call.x.dim(0); ++row) sum += whole_dy(row, out);
    dbias(out) += sum;
  }
  dbias.write(call.dbias);
}

void execute(const ExpandWeight& call) {
  expanded(call.codes, call.rows.dim(0), call.rows.dim(1)).write(call.rows);
}

void execute(const PackWeight&) {
  PITON_ASSERT(false, "reference kernels ask for no packed weight: packed_bytes() is 0");
}

}  // namespace piton::reference
