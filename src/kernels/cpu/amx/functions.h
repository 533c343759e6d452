// Functions of this folder's files; contracts are in table.h.
#pragma once

#include "kernels/cpu/amx/table.h"

namespace piton::cpu::amx {

void multiply(const TileMultiply& product);
void start();
void stop();
void store(const TileStore& store);
void mirror(const TileMirror& mirror);
void add(float* y, std::int64_t y_stride, const float* sums, std::int64_t sums_stride,
         std::int64_t rows, std::int64_t columns);
void pack_left(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k);
void pack_left_columns(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k);
void pack_right(std::byte* to, const Matrix& columns, std::int64_t n, std::int64_t k);
void pack_right_rows(std::byte* to, const Matrix& rows, std::int64_t n, std::int64_t k);
double loop(std::int64_t rounds);
double loading_loop(std::int64_t rounds);

}  // namespace piton::cpu::amx
