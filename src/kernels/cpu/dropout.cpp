// Dropout with bias and residual: rows are divided among threads.
#include "kernels/dropout.h"

#include <cstring>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

// Rows that share one partial sum of the bias gradient.
constexpr std::int64_t kRowBlock = 64;

std::byte* row_of(const Tensor& tensor, std::int64_t row) {
  if (!tensor.defined()) return nullptr;
  return tensor.raw() + row * tensor.stride(0) * size_bytes(tensor.dtype());
}

}  // namespace

void execute(CpuContext& context, const DropoutAddForward& call) {
  const Masks masks(call.dropout);
  const std::int64_t h = call.x.dim(1);
  const Type type = type_of(call.x.dtype());
  context.ranges(call.x.dim(0), grain_of(h * 4), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const MaskRow mask = masks.given() ? masks.hidden(row) : MaskRow{};
      context.vector.dropout_add({.y = row_of(call.y, row),
                                  .x = row_of(call.x, row),
                                  .bias = call.bias.defined() ? call.bias.raw() : nullptr,
                                  .residual = row_of(call.residual, row),
                                  .type = type,
                                  .type_of_y = type_of(call.y.dtype()),
                                  .mask = masks.given() ? &mask : nullptr,
                                  .columns = h});
    }
  });
}

void execute(CpuContext& context, const DropoutAddBackward& call) {
  const Masks masks(call.dropout);
  const std::int64_t n = call.dy.dim(0);
  const std::int64_t h = call.dy.dim(1);
  if (n == 0) return;
  const Type type = type_of(call.dy.dtype());
  const std::int64_t blocks = (n + kRowBlock - 1) / kRowBlock;
  const bool bias = call.dbias.defined();
  auto* sums = reinterpret_cast<float*>(bias ? context.scratch.shared(blocks * h * 4) : nullptr);
  context.ranges(n, kRowBlock, [&](std::int64_t begin, std::int64_t end) {
    float* own = bias ? sums + begin / kRowBlock * h : nullptr;
    if (bias) std::memset(own, 0, static_cast<std::size_t>(h) * 4);
    for (std::int64_t row = begin; row < end; ++row) {
      const MaskRow mask = masks.given() ? masks.hidden(row) : MaskRow{};
      context.vector.dropout_add({.y = row_of(call.dx, row),
                                  .x = row_of(call.dy, row),
                                  .type = type,
                                  .type_of_y = type_of(call.dx.dtype()),
                                  .mask = masks.given() ? &mask : nullptr,
                                  .sums = own,
                                  .columns = h});
    }
  });
  if (!bias) return;
  context.ranges(h, 256, [&](std::int64_t begin, std::int64_t end) {
    const Matrix columns{sums + begin, Type::kF32, h};
    context.vector.column_sums(call.dbias.data<float>() + begin, columns, blocks, end - begin);
  });
}

}  // namespace piton::cpu
