// Loops of muon.cpp; contracts are in table.h.
#pragma once

#include "kernels/cpu/vector/table.h"

namespace piton::cpu::PITON_ISA {

void muon_momentum(const MuonMomentumArguments& a, std::int64_t begin, std::int64_t end);
void muon_normalize(void* y, Type y_type, const float* x, std::int64_t n, float factor);
void muon_update(const MuonUpdateArguments& a, std::int64_t begin, std::int64_t end);

}  // namespace piton::cpu::PITON_ISA
