// The back end for CPUs: loops compiled once per instruction set; work is divided so that results
// depend only on sizes.
//
// Guarantees: a call gives the same bits on any number of threads; rows of a linear cut at
// multiples of row_tile() give the same bits as the whole; after the first steps no call allocates.
// Calls in fp64 are not supported; the reference back end has them.
#pragma once

#include <memory>
#include <string>

#include "base/threads.h"
#include "kernels/kernels.h"

namespace piton {

// `threads` must outlive the result. `isa` forces an instruction set: "x86-64-v2", "x86-64-v3",
// "x86-64-v4", "x86-64-v4-bf16" (or "v3" and so on), "amx"; "" takes the best one of this machine,
// and the faster way to multiply bf16 if it has two (kernels/cpu/processor/choice.h). Throws
// Error(kUsage) if the name is unknown or the machine lacks the set.
std::unique_ptr<Kernels> make_cpu_kernels(ThreadPool& threads, std::string isa = "");

}  // namespace piton
