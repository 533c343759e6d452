// Magnitudes of columns: rows are divided among threads. A gradient is a sum of fixed row blocks,
// added in order.
#include "kernels/magnitude.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kRowBlock = 64;  // rows that share one partial sum

// Row `row` as fp32: in place, or converted to `memory`.
const float* floats_of(const CpuContext& context, const Tensor& tensor, std::int64_t row,
                       float* memory) {
  const std::byte* data = tensor.raw() + row * tensor.stride(0) * size_bytes(tensor.dtype());
  if (tensor.dtype() == DType::kF32) return reinterpret_cast<const float*>(data);
  context.vector.convert(memory, Type::kF32, data, type_of(tensor.dtype()), tensor.dim(-1));
  return memory;
}

float inverse_length(float squares) { return squares > 0 ? 1 / std::sqrt(squares) : 0; }

}  // namespace

void execute(CpuContext& context, const RowSquares& call) {
  const std::int64_t h = call.rows.dim(1);
  auto* squares = call.squares.data<float>();
  context.ranges(call.rows.dim(0), grain_of(h * 4), [&](std::int64_t begin, std::int64_t end) {
    auto* memory = reinterpret_cast<float*>(context.scratch.own(h * 4));
    for (std::int64_t row = begin; row < end; ++row) {
      double sum = 0;
      context.vector.square_sums(&sum, floats_of(context, call.rows, row, memory), h, h, 0, 1);
      squares[row] = static_cast<float>(sum);
    }
  });
}

void execute(CpuContext& context, const MagnitudeForward& call) {
  const std::int64_t f = call.x.dim(1);
  if (call.x.dim(0) == 0) return;
  // y = factor x + offset. A factor of 1 keeps every bit of x.
  auto* factors = reinterpret_cast<float*>(context.scratch.shared(2 * f * 4));
  float* offsets = factors + f;
  context.vector.convert(factors, Type::kF32, call.magnitude.raw(), type_of(call.magnitude.dtype()),
                         f);
  if (call.bias.defined()) {
    context.vector.convert(offsets, Type::kF32, call.bias.raw(), type_of(call.bias.dtype()), f);
  } else {
    std::fill(offsets, offsets + f, 0.0F);
  }
  for (std::int64_t j = 0; j < f; ++j) {
    factors[j] *= inverse_length(call.squares.data<float>()[j]);
    offsets[j] *= 1 - factors[j];
  }
  const std::int64_t width = size_bytes(call.y.dtype());
  context.ranges(call.x.dim(0), grain_of(f * 4), [&](std::int64_t begin, std::int64_t end) {
    auto* memory = reinterpret_cast<float*>(context.scratch.own(2 * f * 4));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = floats_of(context, call.x, row, memory);
      float* y = memory + f;
      for (std::int64_t j = 0; j < f; ++j) y[j] = x[j] * factors[j] + offsets[j];
      context.vector.convert(call.y.raw() + row * call.y.stride(0) * width, type_of(call.y.dtype()),
                             y, Type::kF32, f);
    }
  });
}

void execute(CpuContext& context, const MagnitudeGradient& call) {
  const std::int64_t n = call.x.dim(0);
  const std::int64_t f = call.x.dim(1);
  if (n == 0) return;
  const std::int64_t blocks = (n + kRowBlock - 1) / kRowBlock;
  auto* sums = reinterpret_cast<float*>(context.scratch.shared((blocks + 2) * f * 4));
  float* offsets = sums + blocks * f;
  float* total = offsets + f;
  if (call.bias.defined()) {
    context.vector.convert(offsets, Type::kF32, call.bias.raw(), type_of(call.bias.dtype()), f);
  } else {
    std::fill(offsets, offsets + f, 0.0F);
  }
  std::fill(total, total + f, 0.0F);
  context.ranges(n, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    float* own = sums + begin / kRowBlock * f;
    std::fill(own, own + f, 0.0F);
    auto* memory = reinterpret_cast<float*>(context.scratch.own(2 * f * 4));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = floats_of(context, call.x, row, memory);
      const float* dy = floats_of(context, call.dy, row, memory + f);
      for (std::int64_t j = 0; j < f; ++j) own[j] += dy[j] * (x[j] - offsets[j]);
    }
  });
  context.vector.column_sums(total, Matrix{sums, Type::kF32, f}, blocks, f);
  auto* dmagnitude = call.dmagnitude.data<float>();
  for (std::int64_t j = 0; j < f; ++j)
    dmagnitude[j] += total[j] * inverse_length(call.squares.data<float>()[j]);
}

}  // namespace piton::cpu
