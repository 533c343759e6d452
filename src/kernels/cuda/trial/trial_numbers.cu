// What the trial of a product multiplies, and how its results are compared.
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/trial/product_trial.h"

namespace piton::cuda {
namespace {

template <typename T>
struct WriteNumber {
  T* numbers;

  __device__ void operator()(std::int64_t i) const {
    const std::uint32_t mixed = (static_cast<std::uint32_t>(i) + 1U) * 2654435761U;
    const auto bits = static_cast<float>((mixed ^ mixed >> 15) & 0xFFFFU);
    numbers[i] = narrow<T>(bits / 32768.0F - 1.0F);
  }
};

struct CompareWords {
  const std::uint16_t* one;
  const std::uint16_t* other;
  int* differ;

  __device__ void operator()(std::int64_t i) const {
    if (one[i] != other[i]) *differ = 1;
  }
};

}  // namespace

void write_trial_numbers(DType dtype, void* numbers, std::int64_t count, cudaStream_t stream) {
  with_floating(dtype, [&]<typename T>(std::type_identity<T>) {
    launch_elements("launch of the numbers of a trial", count,
                    WriteNumber<T>{static_cast<T*>(numbers)}, stream);
  });
}

void compare_trials(const void* one, const void* other, std::int64_t count, int* differ,
                    cudaStream_t stream) {
  launch_elements("launch of the comparison of trials", count,
                  CompareWords{static_cast<const std::uint16_t*>(one),
                               static_cast<const std::uint16_t*>(other), differ},
                  stream);
}

}  // namespace piton::cuda
