// Products on tensor cores, of a warp: 16 x 16 by 16 x 8 numbers of 16 bits, with sums in fp32 (PTX
// ISA, mma.m16n8k16 and ldmatrix). Internal to this folder. The emulator of tests has its own file
// in the place of this one.
//
// All lanes of a warp call these functions together. A matrix is spread over the lanes in pairs of
// numbers that are neighbors in k, the first one in the low half. With g = lane / 4 and
// p = lane % 4, a lane has
//   left  [16, 16]  pairs of rows g, g + 8, g, g + 8, from columns 2 p, 2 p, 2 p + 8, 2 p + 8 on
//   right [16, 8]   pairs of column g, from rows 2 p and 2 p + 8 on
//   sums  [16, 8]   row g, columns 2 p and 2 p + 1, then row g + 8, the same columns
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace piton::cuda {

// sums += left right
template <typename T>
__device__ void multiply_fragments(float (&sums)[4], const std::uint32_t (&left)[4],
                                   const std::uint32_t* right) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  } else {
    static_assert(std::is_same_v<T, __half>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  }
}

// Reads four matrices of 8 x 8 numbers from shared memory. Lane 8 i + r gives the address of row r
// of matrix i, which is aligned to 16 bytes. Of each matrix a lane gets the pair of row g from
// column 2 p on; or, transposed, the pair of column g from row 2 p on.
template <bool kTransposed, typename T>
__device__ void load_matrices(std::uint32_t (&pairs)[4], const T* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
  }
}

// Two numbers rounded to nearest even, `low` in the low half.
template <typename T>
__device__ std::uint32_t rounded_pair(float low, float high) {
  std::uint32_t pair = 0;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    static_assert(std::is_same_v<T, __half>);
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// 2^x to about 2 ulp; results below 2^-126 are 0.
__device__ inline float power_of_two(float x) {
  float power = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

}  // namespace piton::cuda
