// The maximum memory bandwidth: loops that only read, or read and write.
#pragma once

#include "base/threads.h"
#include "kernels/optimizer.h"

namespace piton {

// Reads every byte of a contiguous host tensor once; each thread reads a contiguous part. Returns a
// sum so that the compiler does not remove the reads.
std::uint64_t read_once(ThreadPool& threads, const Tensor& tensor);

// Reads and writes the same memory as `call`, with one multiplication instead of AdamW's formula.
void update_once(ThreadPool& threads, const AdamwUpdate& call);

}  // namespace piton
