// Runs CUDA kernels on the host: blocks one after another, the threads of a block as fibers that
// switch at barriers and shuffles. The order of the threads is reversed in every second block.
//
// A fault ends the launch, which throws Fault: an access outside of memory or against the rules of
// memory.h, a race between two barriers, a barrier or shuffle that not all threads reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace piton::emulator {

struct dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

// What threadIdx, blockIdx, blockDim and gridDim are for the running thread.
struct Indices {
  dim3 thread;
  dim3 block;
  dim3 block_size;
  dim3 grid_size;
};
extern Indices indices;

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr unsigned kWarpSize = 32;
inline constexpr std::size_t kMostThreads = 1024;
inline constexpr std::size_t kMostSharedBytes = 227 * 1024;  // of a block, compute capability 9.0

// Runs `thread` for every thread of the grid, with `shared_bytes` of shared memory. Blocks have one
// dim. Throws Fault, and std::invalid_argument if the grid or the block is too large or empty.
void launch(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);

// Launches so far.
std::uint32_t launches();

// For the threads of a kernel.
void sync_block();
void sync_warp(unsigned mask);
int lane();
unsigned atomic_add(unsigned* address, unsigned value);
// One more, or 0 where `most` is reached. Returns the number before.
unsigned atomic_inc(unsigned* address, unsigned most);

// Ends the launch with a Fault that also names the block and the thread. Called by a kernel's
// thread; does not return.
[[noreturn]] void fail(const std::string& what);

// When a thread runs: two accesses are ordered by a barrier between them.
struct Moment {
  std::uint32_t launch = 0;
  std::uint32_t block = 0;
  std::uint32_t block_barriers = 0;
  std::uint16_t warp_barriers = 0;
  std::uint16_t thread = 0;
};

inline constexpr std::size_t kStackBytes = std::size_t{64} << 10;  // of a thread

// What each access asks for.
struct RunningThread {
  bool runs = false;
  std::uintptr_t stack = 0;  // where its stack begins
  Moment moment;
};
extern RunningThread running_thread;

// True while a thread of a kernel runs.
inline bool running() { return running_thread.runs; }
// Whether `address` is on the stack of the running thread, or of the host code that launched it.
inline bool on_own_stack(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) - running_thread.stack < kStackBytes;
}
bool on_launching_stack(const void* address);

// The bytes of shared memory that the running block has.
std::size_t shared_bytes();

// Gives `bytes` of `value` to the other lanes of the warp, waits for all of them, and copies those
// of lane `from` to `value`.
void exchange(unsigned mask, void* value, std::size_t bytes, int from);

// Gives `bytes` of `value` to the other lanes of the warp, waits for all of them, and copies those
// of every lane to `all`, in order. At most kMostExchanged.
inline constexpr std::size_t kMostExchanged = 32;
void gather(unsigned mask, const void* value, std::size_t bytes, void* all);

template <typename T>
T exchanged(unsigned mask, T value, int from) {
  exchange(mask, &value, sizeof(T), from);
  return value;
}

}  // namespace piton::emulator
