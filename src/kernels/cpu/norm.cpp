// Norms: rows are divided among threads. Gradients of gain and bias are sums of fixed row blocks,
// added in order.
#include "kernels/norm.h"

#include <cstring>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

// Rows that share one partial sum. 64 rows of 768 bf16 channels are 96 KiB of x and as much of dy:
// they stay in the second-level cache together with the sum.
constexpr std::int64_t kRowBlock = 64;

float* floats(const Tensor& tensor) { return tensor.defined() ? tensor.data<float>() : nullptr; }

}  // namespace

void execute(CpuContext& context, const NormForward& call) {
  const NormArguments arguments{
      .y = matrix_of(call.y),
      .x = matrix_of(call.x),
      .gain = call.gain.raw(),
      .bias = call.bias.defined() ? call.bias.raw() : nullptr,
      .mean = floats(call.mean),
      .sums = floats(call.squares),
      .rstd = floats(call.rstd),
      .columns = call.x.dim(1),
      .width = call.squares.defined() ? call.width : call.x.dim(1),
      .eps = static_cast<float>(call.eps),
      .gain_offset = static_cast<float>(call.gain_offset),
  };
  context.ranges(call.x.dim(0), grain_of(call.x.dim(1) * 4),
                 [&](std::int64_t begin, std::int64_t end) {
                   context.vector.norm_forward(arguments, begin, end);
                 });
}

void execute(CpuContext& context, const NormBackward& call) {
  const std::int64_t n = call.x.dim(0);
  const std::int64_t h = call.x.dim(1);
  if (n == 0) return;
  const NormArguments shared{
      .y = matrix_of(call.dx),
      .x = matrix_of(call.x),
      .dy = matrix_of(call.dy),
      .dresidual = matrix_of(call.dresidual),
      .gain = call.gain.raw(),
      .mean = floats(call.mean),
      .sums = floats(call.products),
      .rstd = floats(call.rstd),
      .columns = h,
      .width = call.products.defined() ? call.width : h,
      .gain_offset = static_cast<float>(call.gain_offset),
  };
  const bool gain = call.dgain.defined();
  const bool bias = call.dbias.defined();
  const std::int64_t blocks = (n + kRowBlock - 1) / kRowBlock;
  auto* sums = reinterpret_cast<float*>(gain || bias ? context.scratch.shared(blocks * 2 * h * 4)
                                                     : nullptr);  // [blocks, 2, h]
  context.ranges(n, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    NormArguments arguments = shared;
    float* own = sums == nullptr ? nullptr : sums + begin / kRowBlock * 2 * h;
    if (own != nullptr) std::memset(own, 0, static_cast<std::size_t>(2 * h) * 4);
    arguments.dgain = gain ? own : nullptr;
    arguments.dbias = bias ? own + h : nullptr;
    context.vector.norm_backward(arguments, begin, end);
  });
  if (sums == nullptr) return;
  context.ranges(h, 256, [&](std::int64_t begin, std::int64_t end) {
    const Matrix gains{sums + begin, Type::kF32, 2 * h};
    const Matrix biases{sums + h + begin, Type::kF32, 2 * h};
    if (gain)
      context.vector.column_sums(call.dgain.data<float>() + begin, gains, blocks, end - begin);
    if (bias)
      context.vector.column_sums(call.dbias.data<float>() + begin, biases, blocks, end - begin);
  });
}

void execute(CpuContext& context, const NormProducts& call) {
  const std::int64_t h = call.x.dim(1);
  auto* gain = reinterpret_cast<float*>(context.scratch.shared(h * 4));
  context.vector.convert(gain, Type::kF32, call.gain.raw(), type_of(call.gain.dtype()), h);
  for (std::int64_t i = 0; i < h; ++i) gain[i] += static_cast<float>(call.gain_offset);
  const auto row_of = [&](const Tensor& tensor, std::int64_t row, float* memory) {
    context.vector.convert(memory, Type::kF32, tensor.raw() + row * h * size_bytes(tensor.dtype()),
                           type_of(tensor.dtype()), h);
    return memory;
  };
  context.ranges(call.x.dim(0), grain_of(h * 4), [&](std::int64_t begin, std::int64_t end) {
    auto* memory = reinterpret_cast<float*>(context.scratch.own(2 * h * 4));
    for (std::int64_t row = begin; row < end; ++row) {
      const float* x = row_of(call.x, row, memory);
      const float* dy = row_of(call.dy, row, memory + h);
      double sum = 0;
      for (std::int64_t i = 0; i < h; ++i) sum += dy[i] * gain[i] * x[i];
      call.products.data<float>()[row] = static_cast<float>(sum) * call.rstd.data<float>()[row];
    }
  });
}

}  // namespace piton::cpu
