#include "api/device_peak_meter.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "base/error.h"
#include "tensor/arena.h"

namespace piton {
namespace {

constexpr int kRounds = 5;
constexpr int kProducts = 10;  // of a round

// Numbers in [-1, 1): products of zeros take less power, and run faster than those of a model.
Tensor random_matrix(Arena& arena, Stream& stream, Device& device, std::int64_t width) {
  std::vector<float> numbers(static_cast<std::size_t>(width * width));
  std::uint32_t state = 1;
  for (float& number : numbers) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator
    number = static_cast<float>(state >> 8) * 0x1p-23F - 1;
  }
  const Tensor matrix = arena.allocate(DType::kF32, {width, width}, MemoryKind::kWorkspace);
  device.upload(numbers.data(), matrix, stream);
  return matrix;
}

}  // namespace

double DevicePeakMeter::flops(DType dtype) {
  try {
    return measured_flops(dtype);
  } catch (const Error& error) {
    if (error.fault() != Fault::kMemory) throw;
    return 0;
  }
}

double DevicePeakMeter::measured_flops(DType dtype) {
  Arena arena(device_);
  const auto stream = device_.make_stream();
  Tensor x = random_matrix(arena, *stream, device_, width_);
  if (dtype != DType::kF32) {
    const Tensor narrow = arena.allocate(dtype, x.shape(), MemoryKind::kWorkspace);
    kernels_.run(Copy{.dst = narrow, .src = x}, *stream);
    x = narrow;
  }
  const LinearForward product{
      .y = arena.allocate(dtype, x.shape(), MemoryKind::kWorkspace),
      .x = x,
      .weight =
          {.form = WeightForm::kRows, .tensor = x, .out = width_, .in = width_, .dtype = dtype},
  };
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round <= kRounds; ++round) {  // the first one is not measured
    stream->synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kProducts; ++i) kernels_.run(product, *stream);
    stream->synchronize();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (round > 0) best = std::min(best, seconds.count());
  }
  return kProducts * product.flops() / best;
}

}  // namespace piton
