// What device code uses of CUDA C++, on the host (tests/cuda_emulator). A kernel is an ordinary
// function; cudaLaunchKernel() runs it for every thread of a grid, before it returns.
#pragma once

#include <cuda_runtime_api.h>
#include <math.h>

#include <cstdint>

#include "cuda_emulator/capture.h"
#include "cuda_emulator/launcher.h"
#include "cuda_emulator/ordering.h"

#define __global__
#define __device__
#define __host__
#define __shared__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx (piton::emulator::indices.thread)
#define blockIdx (piton::emulator::indices.block)
// No macros: the fields of cudaLaunchConfig_t have these names too.
inline constexpr const piton::emulator::dim3& blockDim = piton::emulator::indices.block_size;
inline constexpr const piton::emulator::dim3& gridDim = piton::emulator::indices.grid_size;

using piton::emulator::dim3;

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };

struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

// Of kernels with one parameter: the others are not used.
template <typename Argument>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Argument),
                               const Argument& argument) {
  const auto grid = config->gridDim;
  const auto block = config->blockDim;
  const std::size_t shared_bytes = config->dynamicSmemBytes;
  piton::emulator::run_or_record(config->stream, [=] {
    // Threads of a kernel may not read what is recorded: it is not the device's.
    const Argument own = argument;
    void (*const run)(Argument) = kernel;
    piton::emulator::launch(grid, block, shared_bytes, [&own, run] { run(own); });
  });
  return cudaSuccess;
}

inline void __syncthreads() { piton::emulator::sync_block(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU) { piton::emulator::sync_warp(mask); }

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {
  return piton::emulator::exchanged(mask, value, piton::emulator::lane() ^ lane_mask);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return piton::emulator::exchanged(mask, value, lane);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  int all[piton::emulator::kWarpSize];
  piton::emulator::gather(mask, &predicate, sizeof predicate, all);
  unsigned bits = 0;
  for (unsigned i = 0; i < piton::emulator::kWarpSize; ++i) bits |= (all[i] != 0 ? 1U : 0U) << i;
  return bits;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }

struct alignas(8) uint2 {
  unsigned x, y;
};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

// A load that asks caches not to keep what it reads.
template <typename T>
T __ldcs(const T* address) {
  return *address;
}

inline long long __double_as_longlong(double value) {
  static_assert(sizeof(long long) == sizeof value);
  long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline double __longlong_as_double(long long bits) {
  double value = 0;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

inline void __threadfence() { piton::emulator::note_fence(); }

inline unsigned atomicInc(unsigned* address, unsigned most) {
  return piton::emulator::atomic_inc(address, most);
}

inline unsigned atomicAdd(unsigned* address, unsigned value) {
  return piton::emulator::atomic_add(address, value);
}
