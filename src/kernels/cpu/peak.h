// What this machine can do at most: loops that touch registers alone.
#pragma once

#include <string>

#include "base/threads.h"
#include "tensor/dtype.h"

namespace piton {

// Floating-point operations a second of all threads of `threads` together, by the widest
// multiply-add that the processor has for `dtype` (kF32, or kBF16 with fp32 sums), whatever kernels
// were chosen. `isa`: an instruction set that was forced (kernels/cpu/kernels.h): then the widest
// that it has; "" where none was. Takes about `seconds`.
double peak_flops(ThreadPool& threads, DType dtype, const std::string& isa = "",
                  double seconds = 0.2);

// The same with operands from the first-level cache and bits as data has them, as a product has to:
// below peak_flops() where loads are what limits the processor, or where it slows down for them. 0
// where registers alone are measured.
double loading_peak_flops(ThreadPool& threads, DType dtype, const std::string& isa = "",
                          double seconds = 0.2);

}  // namespace piton
