// Kernels with a fault each; see faulty.h.
#include "cuda_emulator/faulty.h"
#include "cuda_emulator/own_stream.h"
#include "kernels/cuda/attention/arrivals.cuh"
#include "kernels/cuda/attention/async_copy.cuh"
#include "kernels/cuda/launch.cuh"

namespace piton::emulator {
namespace {

struct Arguments {
  Deed deed;
  const float* x;
  float* y;
  unsigned* count;
};

// As reverse_kernel(), with four numbers in each copy.
__global__ void copying_kernel(Arguments all) {
  float* numbers = cuda::shared_array<float>();
  const int i = static_cast<int>(threadIdx.x);
  const int at = static_cast<int>(blockIdx.x) * 64 + i;
  const auto copy = [&] {
    if (i % 4 == 0) cuda::start_copy(numbers + i, all.x + at, 16);
  };
  copy();
  if (all.deed != Deed::kCopyWithoutWait) cuda::wait_for_copies();
  __syncthreads();
  all.y[at] = numbers[63 - i];
  if (all.deed == Deed::kCopyOverWhatOthersRead) copy();
}

__global__ void reverse_kernel(Arguments all) {
  float* numbers = cuda::shared_array<float>();
  const int i = static_cast<int>(threadIdx.x);
  const int at = static_cast<int>(blockIdx.x) * 64 + i;
  const Deed deed = all.deed;
  const bool last = at == 127;
  if (deed == Deed::kAtomics) atomicAdd(all.count, 1);
  if (deed == Deed::kWritesOfTwoBlocks && i == 0) *all.count = 1;
  if (deed == Deed::kWarpWithBarrier || deed == Deed::kWarpWithoutBarrier) {
    numbers[i] = all.x[at];
    if (deed == Deed::kWarpWithBarrier) __syncwarp();
    all.y[at] = numbers[i ^ 31];
    return;
  }
  if (deed != Deed::kSharedUnwritten || i != 5) {
    numbers[i] = all.x[at + (deed == Deed::kReadBeyondTheEnd && last ? 1 : 0)];
  }
  if (deed == Deed::kSharedBeyondTheEnd && last) numbers[64] = 0;
  if (deed == Deed::kShuffleOfSome && i < 8) __shfl_xor_sync(0xFFFFFFFFU, 1, 1);
  if (deed == Deed::kBarrierOfSome && i == 3) return;
  if (deed != Deed::kMissingBarrier) __syncthreads();
  if (deed == Deed::kReadOfUnwritten && i == 7) all.y[at] = all.y[at] + 1;
  all.y[at + (deed == Deed::kWriteBeyondTheEnd && last ? 1 : 0)] = numbers[63 - i];
}

// Each block copies its numbers. The last one, by the counter, adds those of the other to its own.
__global__ void last_block_kernel(Arguments all) {
  unsigned* last = cuda::shared_array<unsigned>();
  const int i = static_cast<int>(threadIdx.x);
  const int block = static_cast<int>(blockIdx.x);
  all.y[block * 64 + i] = all.x[block * 64 + i];
  if (all.deed == Deed::kLastBlock) {
    if (!cuda::is_last_to_arrive(all.count, 2, last)) return;
  } else {
    if (all.deed != Deed::kLastBlockWithoutBarrier) __syncthreads();
    if (i == 0) {
      if (all.deed != Deed::kLastBlockWithoutFence) __threadfence();
      *last = atomicInc(all.count, 1);
      if (all.deed != Deed::kLastBlockWithoutFenceAfter) __threadfence();
    }
    __syncthreads();
    if (*last == 0) return;
  }
  all.y[block * 64 + i] += all.y[(1 - block) * 64 + i];
}

}  // namespace

void reverse(Deed deed, const float* x, float* y, unsigned* count) {
  const OwnStream stream;
  const auto kernel = deed >= Deed::kLastBlock ? last_block_kernel
                      : deed >= Deed::kCopy    ? copying_kernel
                                               : reverse_kernel;
  cuda::launch("reverse", kernel,
               {.blocks = {2, 1, 1}, .threads = 64, .shared_bytes = 64 * sizeof(float)},
               Arguments{deed, x, y, count}, stream.handle());
}

}  // namespace piton::emulator
