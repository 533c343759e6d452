// Kernels with one fault each, to show that the emulator sees it, and the same kernels without it.
#pragma once

#include <cuda_runtime_api.h>

namespace piton::emulator {

enum class Deed {
  kNothingWrong,
  kReadBeyondTheEnd,
  kWriteBeyondTheEnd,
  kReadOfUnwritten,
  kMissingBarrier,
  kBarrierOfSome,
  kShuffleOfSome,
  kWritesOfTwoBlocks,
  kSharedBeyondTheEnd,
  kSharedUnwritten,
  kWarpWithoutBarrier,
  kWarpWithBarrier,
  kAtomics,
  kCopy,  // by start_copy()
  kCopyWithoutWait,
  kCopyOverWhatOthersRead,
  kLastBlock,  // by is_last_to_arrive()
  kLastBlockWithoutBarrier,
  kLastBlockWithoutFence,
  kLastBlockWithoutFenceAfter
};

// Two blocks of 64 threads turn each 64 numbers of `x` around: y[i] = x[63 - i]. The call counter
// `count` counts the threads. `x` and `y` hold 128 numbers. Deeds of the last block: it adds what
// the other one has written.
void reverse(Deed deed, const float* x, float* y, unsigned* count);

}  // namespace piton::emulator
