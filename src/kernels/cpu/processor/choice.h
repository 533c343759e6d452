// Chooses how to multiply bf16 if an instruction set has two ways: the bf16 dot product, or fp32
// multiply-adds of widened operands. On some processors the dot product is twice as fast, on others
// half as fast.
//
// The choice affects bits. For known processor families it depends only on the family, so that the
// same processor always chooses the same, and a measurement is only a check. For other families the
// measurement decides.
#pragma once

#include <string>
#include <string_view>

#include "kernels/cpu/processor/isa.h"

namespace piton::cpu {

// Floating-point operations per second of one core, on registers only.
struct ProductSpeeds {
  double fma = 0;
  double dot = 0;
};

struct ProductChoice {
  bool dot = false;
  std::string why;  // for the log; empty if there is no choice
};

// From cpuid: "AuthenticAMD", 25. On ARM, where no set has two ways: "", 0.
struct Processor {
  std::string vendor;
  int family = 0;
};
Processor this_processor();

// Takes about a millisecond.
ProductSpeeds measured_speeds(Isa isa);

// For a set with both ways. For an unknown family, the dot product if it is clearly faster.
ProductChoice choose_products(const Processor& processor, const ProductSpeeds& speeds);

// For this machine. A forced set uses the instructions in its name.
ProductChoice choose_products(Isa isa, bool forced);

}  // namespace piton::cpu
