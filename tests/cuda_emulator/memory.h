// The memory of the emulated device, and what each of its bytes may be used for.
//
// Kernels are compiled with -fsanitize=thread, and the functions that the compiler calls for each
// access are here in place of that sanitizer's. A fault ends the launch (launcher.h):
//   an access outside of all allocations, of the block's shared memory and of the thread's stack
//   a read of bytes that nobody has written
//   two accesses of one launch to the same bytes, one of them a write, by threads without a barrier
//     between them; threads of different blocks have none, but may be ordered (ordering.h)
//   while a call is declared: a read of what no tensor of the call holds, or a write to what no
//     tensor that it writes holds, gaps between rows included
// The rules are kept for pairs of bytes: single bytes are not checked for races.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/kernels.h"

namespace piton::emulator {

// Filled with 0xFF, which is NaN. Unreadable until written. nullptr: out of memory.
void* allocate(std::size_t bytes);
void release(void* data);
std::size_t allocated_bytes();

bool is_allocated(const void* data);

// Accesses of the host: copies, and results of library calls. Throw Fault outside of allocations.
void host_writes(void* data, std::size_t bytes);
void host_reads(const void* data, std::size_t bytes);

// From now on kernels may use the tensors of these calls, and what is allocated from now on. What
// the calls write without reading it counts as not written. Until end_call().
void begin_calls(std::span<const CallChain> chains);
void end_call();

// Shared memory of the last block counts as not written.
void forget_shared_memory();

}  // namespace piton::emulator
