// Which instructions multiply bf16, where an instruction set has two ways: the bf16 dot product, or
// fp32 multiply-adds of operands that were widened. On some processors the dot product is twice as
// fast, on others half.
//
// The choice decides bits. It follows from the processor's family where that is known, so that the
// same processor always chooses the same, and is only checked by a measurement; elsewhere the
// measurement decides.
#pragma once

#include <string>
#include <string_view>

#include "kernels/cpu/isa.h"

namespace piton::cpu {

// Floating-point operations a second of one core, on registers alone.
struct ProductSpeeds {
  double fma = 0;
  double dot = 0;
};

struct ProductChoice {
  bool dot = false;
  std::string why;  // for the log; empty where there is nothing to choose
};

// As cpuid has it: "AuthenticAMD", 25.
struct Processor {
  std::string vendor;
  int family = 0;
};
Processor this_processor();

// Takes about a millisecond.
ProductSpeeds measured_speeds(Isa isa);

// For a set that has both. Of an unknown family, the dot product where it is clearly faster.
ProductChoice choose_products(const Processor& processor, const ProductSpeeds& speeds);

// For this machine. A forced set is what its name says.
ProductChoice choose_products(Isa isa, bool forced);

}  // namespace piton::cpu
