// Loops of layers with a state of fixed size; contracts are in table.h.
#pragma once

#include "kernels/cpu/vector/table.h"

namespace piton::cpu::PITON_ISA {

void convolution_forward(const ConvolutionArguments& a);
void convolution_backward(const ConvolutionArguments& a);
void delta_forward(const DeltaArguments& a);

}  // namespace piton::cpu::PITON_ISA
