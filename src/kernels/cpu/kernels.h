// The back end for processors: loops compiled once for each instruction set, work divided so that
// results follow from sizes alone.
//
// Promises: a call gives the same bits on any number of threads; rows of a linear cut at multiples
// of row_tile() give the same bits as the whole; after the first steps no call allocates. Calls in
// fp64 are not served: they are the reference's.
#pragma once

#include <memory>
#include <string>

#include "base/threads.h"
#include "kernels/kernels.h"

namespace piton {

// `threads` must outlive the result. `isa` forces an instruction set: "x86-64-v2", "x86-64-v3",
// "x86-64-v4", "x86-64-v4-bf16" (or "v3" and so on), "amx"; "" takes the best one that this machine
// has, and the faster way to multiply bf16 where it has two (kernels/cpu/choice.h). Throws
// Error(kUsage) if the name is unknown or the machine lacks the set.
std::unique_ptr<Kernels> make_cpu_kernels(ThreadPool& threads, std::string isa = "");

}  // namespace piton
