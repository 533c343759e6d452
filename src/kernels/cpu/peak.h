// What this machine can do at most: loops that touch registers alone.
#pragma once

#include "base/threads.h"
#include "tensor/dtype.h"

namespace piton {

// Floating-point operations a second of all threads of `threads` together, by the widest
// multiply-add of `dtype` (kF32, or kBF16 with fp32 sums; where the machine has no bf16 dot
// product, the fp32 figure). Takes about `seconds`.
double peak_flops(ThreadPool& threads, DType dtype, double seconds = 0.2);

}  // namespace piton
