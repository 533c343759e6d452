// Loops of softmax.cpp and product.cpp; contracts are in table.h.
#pragma once

#include "kernels/cpu/vector/table.h"

namespace piton::cpu::PITON_ISA {

void product(int m, int n, int k, const float* a, std::int64_t a_row, std::int64_t a_column,
             const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride,
             bool accumulate);
void transpose(float* y, std::int64_t y_stride, const Matrix& x, int m, int n);
void softmax_step(const ScoreArguments& a, float* maxima, float* sums, float* out,
                  std::int64_t out_stride, int d);
void softmax_again(const ScoreArguments& a, const float* lse);
void score_gradient(float* dp, const float* p, std::int64_t stride, int rows, int columns,
                    const float* delta, float scale);
float dot(const void* a, Type a_type, const void* b, Type b_type, std::int64_t d);

}  // namespace piton::cpu::PITON_ISA
