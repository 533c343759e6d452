// What this machine can do at most: loops that touch registers alone.
#pragma once

#include "base/threads.h"
#include "tensor/dtype.h"

namespace piton {

// Floating-point operations a second of all threads of `threads` together, by the widest
// multiply-add that the processor has for `dtype` (kF32, or kBF16 with fp32 sums), whatever kernels
// were chosen. Takes about `seconds`.
double peak_flops(ThreadPool& threads, DType dtype, double seconds = 0.2);

// The same with every operand loaded from the first-level cache, as a product has to: below
// peak_flops() where loads are what limits the processor. 0 where registers alone are measured.
double loading_peak_flops(ThreadPool& threads, DType dtype, double seconds = 0.2);

}  // namespace piton
