// The highest speed of this machine: loops that only use registers.
#pragma once

#include <string>

#include "base/threads.h"
#include "tensor/dtype.h"

namespace piton {

// Floating-point operations per second of all threads of `threads` together, with the widest
// multiply-add of the processor for `dtype` (kF32, or kBF16 with fp32 sums), whatever kernels were
// chosen. `isa`: a forced instruction set (kernels/cpu/kernels.h), whose widest multiply-add is
// used; "" if none is forced. Takes about `seconds`.
double peak_flops(ThreadPool& threads, DType dtype, const std::string& isa = "",
                  double seconds = 0.2);

// The same with operands from the first-level cache and with bits like those of data, as in a
// product: below peak_flops() if loads limit the processor, or if it slows down for such bits. 0 if
// only the loop on registers exists.
double loading_peak_flops(ThreadPool& threads, DType dtype, const std::string& isa = "",
                          double seconds = 0.2);

}  // namespace piton
