// Loops of elementwise.cpp; contracts are in table.h.
#pragma once

#include "kernels/cpu/vector/table.h"

namespace piton::cpu::PITON_ISA {

void convert(void* y, Type y_type, const void* x, Type x_type, std::int64_t n);
void add(void* y, const void* a, const void* b, Type type, std::int64_t n);
void scale(void* y, const void* x, Type type, std::int64_t n, float factor);
void soft_cap(float* y, const float* x, std::int64_t n, float scale, float cap);
void soft_cap_gradient(void* dx, const void* dy, Type type, const float* y, std::int64_t n,
                       float cap);
void accumulate(float* y, const void* x, Type type, std::int64_t n);
void column_sums(float* sums, const Matrix& x, std::int64_t rows, std::int64_t columns);
void dropout_add(const DropoutArguments& a);
void add_noise(void* y, Type type, const MaskRow& row, float bound, std::int64_t columns);
void mask(float* x, const MaskRow& row, std::int64_t first, int columns);
void adamw(const AdamwArguments& a, std::int64_t begin, std::int64_t end);
void sgd(const SgdArguments& a, std::int64_t begin, std::int64_t end);
void square_sums(double* sums, const float* x, std::int64_t n, std::int64_t block,
                 std::int64_t begin, std::int64_t end);

}  // namespace piton::cpu::PITON_ISA
