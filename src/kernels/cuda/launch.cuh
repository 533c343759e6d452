// Launches of kernels, each with one struct of arguments, and shared memory. Internal to this
// folder.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "device/cuda/check.h"
#include "kernels/cuda/early_start.cuh"

namespace piton::cuda {

inline constexpr int kThreads = 256;  // per block, unless a kernel says otherwise
// Blocks that a multiprocessor has registers for, of every kernel: 128 registers for each of
// kThreads threads. Without this number the compiler aims at more blocks, and spills registers for
// them.
inline constexpr int kBlocks = 2;
inline constexpr int kWarp = 32;
inline constexpr int kWarps = kThreads / kWarp;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// The shared memory of a block. All of it is dynamic, so that the emulator knows its size. Tiles of
// warpgroups begin at multiples of 1024 bytes.
extern __shared__ __align__(1024) unsigned char shared_memory[];

template <typename T>
__device__ T* shared_array(std::int64_t first_byte = 0) {
  return reinterpret_cast<T*>(shared_memory + first_byte);
}

// Blocks for a loop over `items` by all threads of a grid: enough to fill any GPU, and below the
// maximum size of a grid.
inline unsigned blocks_for(std::int64_t items, std::int64_t items_per_block) {
  return static_cast<unsigned>(std::min<std::int64_t>(
      (items + items_per_block - 1) / items_per_block, std::int64_t{1} << 20));
}

struct LaunchShape {
  dim3 blocks;
  int threads = kThreads;
  std::size_t shared_bytes = 0;
  bool early =
      false;  // whether the kernel may start before the one in front ends (early_start.cuh)
};

// The most blocks of a grid in its second and third dim.
inline constexpr unsigned kMostBlocks = 65535;
// More than this has to be asked for.
inline constexpr std::size_t kPlainSharedBytes = 48 * 1024;

// Whether the selected device takes LaunchShape::early.
inline bool takes_early_starts(std::string_view name) {
  int device = 0;
  int major = 0;
  check(cudaGetDevice(&device), name);
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), name);
  return major >= 9;
}

// Enqueues kernel(arguments) on `stream`, or nothing where that is null (CallContext::stream).
// `name` is for messages: "launch of adamw".
template <typename Arguments>
void launch(std::string_view name, void (*kernel)(Arguments), const LaunchShape& shape,
            Arguments arguments, cudaStream_t stream) {
  PITON_ASSERT(shape.blocks.y <= kMostBlocks && shape.blocks.z <= kMostBlocks,
               "cuda: {}: a grid of {} x {} x {} blocks", name, shape.blocks.x, shape.blocks.y,
               shape.blocks.z);
  if (stream == nullptr) return;
  if (shape.shared_bytes > kPlainSharedBytes) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          name);
  }
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = dim3{static_cast<unsigned>(shape.threads), 1, 1};
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = shape.early && takes_early_starts(name) ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, arguments), name);
}

// body(i) for every i below `count`, in any order.
template <typename Body>
struct Elements {
  Body body;
  std::int64_t count;
};

template <typename Body>
__global__ void __launch_bounds__(kThreads, kBlocks) run_elements(Elements<Body> elements) {
  wait_for_previous();
  let_next_start();
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements.count;
       i += step) {
    elements.body(i);
  }
}

template <typename Body>
void launch_elements(std::string_view name, std::int64_t count, const Body& body,
                     cudaStream_t stream) {
  if (count == 0) return;
  launch(name, run_elements<Body>, {.blocks = {blocks_for(count, kThreads), 1, 1}, .early = true},
         Elements<Body>{body, count}, stream);
}

}  // namespace piton::cuda
