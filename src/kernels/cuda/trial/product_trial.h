// Which algorithm of the library is the fastest for a product. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "tensor/dtype.h"

namespace piton::cuda {

// The memory of a product, with gaps between rows.
struct TrialSizes {
  DType dtype;        // of left and right: 16 bits
  std::int64_t left;  // elements
  std::int64_t right;
  std::int64_t y_bytes;
};

struct TrialMemory {
  void* left;
  void* right;
  void* y;
};

// The place of the fastest of `count` algorithms whose results have the bits of the first one: so
// the choice, which differs from run to run, does not change what is computed. run(i, memory)
// enqueues algorithm i on `stream`, and says whether it runs. 0 while the stream is captured, or
// without memory for the trial. Waits for the stream.
std::size_t fastest_algorithm(std::size_t count, const TrialSizes& sizes, cudaStream_t stream,
                              const std::function<bool(std::size_t, const TrialMemory&)>& run);

// Numbers between -1 and 1, the same each time.
void write_trial_numbers(DType dtype, void* numbers, std::int64_t count, cudaStream_t stream);

// Sets *differ to 1 if two results of `count` words of 16 bits are not the same.
void compare_trials(const void* one, const void* other, std::int64_t count, int* differ,
                    cudaStream_t stream);

}  // namespace piton::cuda
