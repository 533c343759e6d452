// Sizes of panels and groups, and the loops of pack.cpp; contracts are in panels.h.
#pragma once

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

constexpr int kPanelVectors = kRegisters == 32 ? 3 : 2;
constexpr int kPanelColumns = kPanelVectors * kLanes;
constexpr int kGroup = kRegisters == 32 ? 8 : 6;
// The left side of a part (512 KiB with AVX-512, 192 KiB otherwise) and a panel stay in the
// second-level cache, which may be 256 KiB on processors without AVX-512.
constexpr int kDepth = kLanes == 16 ? 1024 : 512;
constexpr int kPartRows = kLanes == 16 ? 128 : 96;
// Padded, so that rows begin in different sets of the first-level cache.
constexpr int kLeftStride = kDepth + 16;

void pack_right(void* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
void pack_right_columns(void* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
void pack_right_wide(float* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
void pack_right_columns_wide(float* panels, const Matrix& rows, std::int64_t k, std::int64_t n);
void pack_left(float* groups, const Matrix& columns, std::int64_t k, std::int64_t m);

}  // namespace piton::cpu::PITON_ISA
