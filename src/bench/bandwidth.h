// What memory gives at most: loops that do nothing but read, or read and write.
#pragma once

#include "base/threads.h"
#include "kernels/optimizer.h"

namespace piton {

// Reads every byte of a contiguous host tensor once, all threads together, a contiguous part each.
// The sum that comes back only keeps the reads from being left out.
std::uint64_t read_once(ThreadPool& threads, const Tensor& tensor);

// Reads and writes exactly what the call does, with a multiplication where AdamW has its formula.
void update_once(ThreadPool& threads, const AdamwUpdate& call);

}  // namespace piton
