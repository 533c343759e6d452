// In place of src/kernels/cuda/attention/async_copy.cuh: a copy writes NaN when it starts and the
// data when its thread waits, so that reads before the wait, and writes over what others still
// read, are found.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_emulator/async_copy.h"

namespace piton::cuda {

template <typename T>
void start_copy(T* to, const T* from, int bytes) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
    emulator::fail("a copy that is not aligned to 16 bytes");
  }
  if (bytes < 0 || bytes > 16) emulator::fail("a copy of more than 16 bytes");
  *reinterpret_cast<uint4*>(to) = uint4{~0U, ~0U, ~0U, ~0U};
  emulator::add_copy({to, from, bytes});
}

inline void end_copies() { emulator::end_copies(); }

template <int kLeft>
void wait_for_batches() {
  emulator::Copy copy{};
  while (emulator::next_copy(&copy, kLeft)) {
    if (copy.bytes == 16) {
      *static_cast<uint4*>(copy.to) = *static_cast<const uint4*>(copy.from);
      continue;
    }
    auto* to = static_cast<std::uint16_t*>(copy.to);
    const auto* from = static_cast<const std::uint16_t*>(copy.from);
    for (int i = 0; i < 8; ++i) to[i] = 2 * i < copy.bytes ? from[i] : std::uint16_t{0};
  }
}

inline void wait_for_copies() { wait_for_batches<0>(); }

}  // namespace piton::cuda
