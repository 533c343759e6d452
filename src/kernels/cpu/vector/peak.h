// Loops of peak.cpp; contracts are in table.h.
#pragma once

#include <cstdint>

namespace piton::cpu::PITON_ISA {

double fma_loop(std::int64_t rounds);
double loading_fma_loop(std::int64_t rounds);

}  // namespace piton::cpu::PITON_ISA
