// Convolution of channels: blocks of channels are divided among threads, and forward texts too. A
// block takes some rows at a time, which stay in the first-level cache with those before them.
#include "kernels/recurrent/convolution.h"

#include <algorithm>

#include "kernels/cpu/context.h"
#include "kernels/cpu/recurrent/text_parts.h"

namespace piton::cpu {
namespace {

// Channels of one part, of a multiple of every vector: rows of a tensor are pages apart, so few
// pieces of them are read. Rows at a time.
constexpr std::int64_t kBlock = 256;
constexpr std::int64_t kRows = 16;

// Rows of some channels in fp32, with those before them.
class ChannelRows {
 public:
  ChannelRows(CpuContext& context, std::int64_t first, std::int64_t channels)
      : context_(context), first_(first), channels_(channels) {}

  void read(float* to, const Tensor& x, std::int64_t row, std::int64_t rows) const {
    for (std::int64_t i = 0; i < rows; ++i)
      context_.vector.convert(to + i * kBlock, Type::kF32, at(x, row + i), type_of(x.dtype()),
                              channels_);
  }
  void write(const Tensor& y, std::int64_t row, std::int64_t rows, const float* from) const {
    for (std::int64_t i = 0; i < rows; ++i)
      context_.vector.convert(at(y, row + i), type_of(y.dtype()), from + i * kBlock, Type::kF32,
                              channels_);
  }

 private:
  std::byte* at(const Tensor& x, std::int64_t row) const {
    return x.raw() + (row * x.stride(0) + first_) * size_bytes(x.dtype());
  }
  CpuContext& context_;
  std::int64_t first_;
  std::int64_t channels_;
};

// The weights [c, w] as blocks of [w, kBlock] and biases (0 without) in fp32, and how many rows
// each row reads; in shared scratch.
struct SharedParts {
  float* weights = nullptr;
  float* biases = nullptr;
  std::uint8_t* reach = nullptr;
};

SharedParts shared_parts(CpuContext& context, const Tensor& weight, const Tensor& bias,
                         const Tensor& segments, const std::vector<TextPart>& parts) {
  const std::int64_t channels = weight.dim(0);
  const std::int64_t width = weight.dim(1);
  const std::int64_t blocks = (channels + kBlock - 1) / kBlock;
  const std::int64_t all = blocks * width * kBlock;
  const std::int64_t rows = parts.empty() ? 0 : parts.back().begin + parts.back().rows;
  std::byte* memory =
      context.scratch.shared((all + blocks * kBlock + weight.elements()) * 4 + rows);
  SharedParts shared{.weights = reinterpret_cast<float*>(memory)};
  shared.biases = shared.weights + all;
  std::fill_n(shared.biases, blocks * kBlock, 0.0F);
  if (bias.defined())
    context.vector.convert(shared.biases, Type::kF32, bias.raw(), type_of(bias.dtype()), channels);
  float* plain = shared.biases + blocks * kBlock;
  context.vector.convert(plain, Type::kF32, weight.raw(), type_of(weight.dtype()),
                         weight.elements());
  std::fill_n(shared.weights, all, 0.0F);
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t j = 0; j < width; ++j)
      shared.weights[(c / kBlock * width + j) * kBlock + c % kBlock] = plain[c * width + j];
  }
  shared.reach = reinterpret_cast<std::uint8_t*>(plain + weight.elements());
  for (const TextPart& part : parts) {
    std::int64_t reach = part.continues ? width : 0;
    for (std::int64_t row = 0; row < part.rows; ++row) {
      reach = begins_segment(part, segments, row) ? 1 : std::min(reach + 1, width);
      shared.reach[part.begin + row] = static_cast<std::uint8_t>(reach);
    }
  }
  return shared;
}

}  // namespace

void execute(CpuContext& context, const ConvolutionForward& call) {
  const std::int64_t channels = call.x.dim(1);
  const std::int64_t width = call.weight.dim(1);
  const std::int64_t blocks = (channels + kBlock - 1) / kBlock;
  const std::vector<TextPart> parts = text_parts(call.texts, call.samples, call.x.dim(0));
  const SharedParts shared = shared_parts(context, call.weight, call.bias, call.segments, parts);
  context.threads.run(blocks * std::ssize(parts), [&](std::int64_t index) {
    const TextPart& part = parts[static_cast<std::size_t>(index / blocks)];
    const std::int64_t block = index % blocks;
    const ChannelRows rows(context, block * kBlock, std::min(kBlock, channels - block * kBlock));
    const std::int64_t before = width - 1;
    auto* x = reinterpret_cast<float*>(context.scratch.own((2 * kRows + before) * kBlock * 4));
    float* y = x + (kRows + before) * kBlock;
    std::fill_n(x, (kRows + before) * kBlock, 0.0F);
    const Tensor state = part.slot < 0 ? Tensor() : call.state.slice(0, part.slot, 1);
    const auto states = [&] { return state.reshape({before, channels}); };
    if (part.continues) rows.read(x, states(), 0, before);
    for (std::int64_t row = 0; row < part.rows; row += kRows) {
      const std::int64_t some = std::min(kRows, part.rows - row);
      rows.read(x + before * kBlock, call.x, part.begin + row, some);
      context.vector.convolution_forward({.y = y,
                                          .x = x,
                                          .weight = shared.weights + block * width * kBlock,
                                          .bias = shared.biases + block * kBlock,
                                          .reach = shared.reach + part.begin + row,
                                          .rows = some,
                                          .columns = kBlock,
                                          .width = width,
                                          .silu = call.silu});
      rows.write(call.y, part.begin + row, some, y);
      std::copy_n(x + some * kBlock, before * kBlock, x);
    }
    if (part.slot >= 0) rows.write(states(), 0, before, x);
  });
}

void execute(CpuContext& context, const ConvolutionBackward& call) {
  const std::int64_t channels = call.x.dim(1);
  const std::int64_t width = call.weight.dim(1);
  const std::int64_t blocks = (channels + kBlock - 1) / kBlock;
  const std::vector<TextPart> parts = text_parts({}, call.samples, call.x.dim(0));
  const SharedParts shared = shared_parts(context, call.weight, call.bias, call.segments, parts);
  const std::int64_t before = width - 1;
  context.threads.run(blocks, [&](std::int64_t block) {
    const std::int64_t first = block * kBlock;
    const std::int64_t some = std::min(kBlock, channels - first);
    const ChannelRows rows(context, first, some);
    const std::int64_t padded = (kRows + before) * kBlock;
    auto* x = reinterpret_cast<float*>(
        context.scratch.own((2 * padded + (kRows + width + 1) * kBlock) * 4));
    float* dx = x + padded;
    float* dy = dx + padded;
    float* dweight = dy + kRows * kBlock;
    float* dbias = dweight + width * kBlock;
    std::fill_n(dweight, (width + 1) * kBlock, 0.0F);
    std::fill_n(dy, kRows * kBlock, 0.0F);
    for (const TextPart& part : parts) {
      std::fill_n(x, 2 * padded, 0.0F);
      // Gradients are whole `before` rows behind: those in front of a sample are of no row.
      const auto write = [&](std::int64_t row, std::int64_t count) {
        const std::int64_t none = std::clamp(before - row, std::int64_t{0}, count);
        rows.write(call.dx, part.begin + row + none - before, count - none, dx + none * kBlock);
      };
      for (std::int64_t row = 0; row < part.rows; row += kRows) {
        const std::int64_t count = std::min(kRows, part.rows - row);
        rows.read(x + before * kBlock, call.x, part.begin + row, count);
        rows.read(dy, call.dy, part.begin + row, count);
        context.vector.convolution_backward({.dx = dx,
                                             .dweight = dweight,
                                             .dbias = dbias,
                                             .dy = dy,
                                             .x = x,
                                             .weight = shared.weights + block * width * kBlock,
                                             .bias = shared.biases + block * kBlock,
                                             .reach = shared.reach + part.begin + row,
                                             .rows = count,
                                             .columns = kBlock,
                                             .width = width,
                                             .silu = call.silu});
        write(row, count);
        for (float* one : {x, dx}) std::copy_n(one + count * kBlock, before * kBlock, one);
        std::fill_n(dx + before * kBlock, count * kBlock, 0.0F);
      }
      write(part.rows, before);
    }
    if (call.dbias.defined()) {
      auto* sums = call.dbias.data<float>();
      for (std::int64_t c = 0; c < some; ++c) sums[first + c] += dbias[c];
    }
    if (!call.dweight.defined()) return;
    auto* sums = call.dweight.data<float>();
    for (std::int64_t c = 0; c < some; ++c) {
      for (std::int64_t j = 0; j < width; ++j)
        sums[(first + c) * width + j] += dweight[j * kBlock + c];
    }
  });
}

}  // namespace piton::cpu
