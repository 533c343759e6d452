// Loops of rows.cpp: norms, activations, rotary, loss; contracts are in table.h.
#pragma once

#include "kernels/cpu/vector/table.h"

namespace piton::cpu::PITON_ISA {

void norm_forward(const NormArguments& a, std::int64_t begin, std::int64_t end);
void norm_backward(const NormArguments& a, std::int64_t begin, std::int64_t end);
void activation_forward(const ActivationArguments& a, std::int64_t begin, std::int64_t end);
void activation_backward(const ActivationArguments& a, std::int64_t begin, std::int64_t end);
void finish(const FinishArguments& a);
void rotary(void* x, Type type, const float* cosine, const float* sine, std::int64_t d, bool pairs,
            float sign);
void loss_statistics(const float* logits, std::int64_t valid, float* maximum, float* sum);
void loss_gradient(void* y, Type type, const float* logits, std::int64_t columns,
                   std::int64_t valid, float lse, float factor);

}  // namespace piton::cpu::PITON_ISA
