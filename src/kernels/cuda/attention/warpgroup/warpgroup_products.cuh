// Products on the tensor cores of Hopper, of a warpgroup: four warps whose first one has a number
// that is a multiple of 4 (PTX ISA, wgmma.mma_async). Internal to this folder. The emulator of
// tests has its own file in the place of this one.
//
// A tile in shared memory has rows of 64 numbers of 16 bits, 128 bytes, and begins at a multiple of
// 1024 bytes. Of row r, the 16 bytes from number 8 c on are in the place of those from number
// 8 (c ^ r % 8) on, so that rows of one column are in different banks ("128-byte swizzle").
//
// All threads of the warpgroup call these functions together. Warp w has rows 16 w .. 16 w + 15 of
// the left side and of the sums, spread over its lanes as in tensor_cores.cuh. Products run while
// the threads continue: between begin_products() and wait_for_products() nobody reads the sums, or
// writes what is multiplied.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace piton::cuda {

inline constexpr int kGroupThreads = 128;
inline constexpr int kGroupRows = 64;    // of the left side of a product, and of a tile
inline constexpr int kTileNumbers = 64;  // of a row of a tile

// Where a product reads a tile from (PTX ISA, "Matrix descriptor"): the low half of the descriptor.
struct TileOperand {
  std::uint32_t low;

  __device__ TileOperand moved(int bytes) const {
    return {low + static_cast<std::uint32_t>(bytes / 16)};
  }
  // Eight rows are 1024 bytes, and their 16 bytes have other places: the 128-byte swizzle is 1.
  __device__ std::uint64_t bits() const {
    constexpr std::uint64_t kHigh = std::uint64_t{1024 / 16} << 32 | std::uint64_t{1} << 62;
    return kHigh | low;
  }
};

template <typename T>
__device__ TileOperand tile_operand(const T* tile) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(tile));
  return {(address & 0x3FFFFU) >> 4 | 1U << 16};
}

// The same operand, which the compiler then knows to be that of all lanes: it is in registers of
// the warp, and not moved there for each product.
__device__ inline TileOperand same_in_warp(TileOperand operand) {
  return {__shfl_sync(0xFFFFFFFFU, operand.low, 0)};
}

// What this thread has written to shared memory, also by copies that it has waited for, is there
// for products behind the next barrier.
__device__ inline void publish_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Before the first product of a batch: the registers have what was written to them.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends a batch.
__device__ inline void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until all batches but the last kLeft have ended.
template <int kLeft>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// The compiler may not use these sums before this place: they are those of products that have
// ended.
template <int kBlocks>
__device__ void receive(float (&sums)[kBlocks][4]) {
  for (auto& block : sums) {
    for (float& sum : block) asm volatile("" : "+f"(sum)::"memory");
  }
}

#define PITON_SUMS_OF(b) "+f"(sums[b][0]), "+f"(sums[b][1]), "+f"(sums[b][2]), "+f"(sums[b][3])
#define PITON_SUMS                                                                          \
  PITON_SUMS_OF(0), PITON_SUMS_OF(1), PITON_SUMS_OF(2), PITON_SUMS_OF(3), PITON_SUMS_OF(4), \
      PITON_SUMS_OF(5), PITON_SUMS_OF(6), PITON_SUMS_OF(7)
#define PITON_SUM_NAMES                                                                    \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

// sums [64, 64] = left [64, 16] right [64, 16]^T, or += where `adds`: numbers 0 .. 15 of rows at
// both operands.
template <typename T>
__device__ void multiply_by_rows_of_tile(float (&sums)[8][4], TileOperand left, TileOperand right,
                                         bool adds) {
  const int scale = adds ? 1 : 0;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " PITON_SUM_NAMES
        ", %32, %33, p, 1, 1, 0, 0;}"
        : PITON_SUMS
        : "l"(left.bits()), "l"(right.bits()), "r"(scale)
        : "memory");
  } else {
    static_assert(std::is_same_v<T, __half>);
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " PITON_SUM_NAMES
        ", %32, %33, p, 1, 1, 0, 0;}"
        : PITON_SUMS
        : "l"(left.bits()), "l"(right.bits()), "r"(scale)
        : "memory");
  }
}

// sums [64, 64] += left [64, 16] right [16, 64]: 16 rows at the operand.
template <typename T>
__device__ void add_product_with_tile(float (&sums)[8][4], const std::uint32_t (&left)[4],
                                      TileOperand right) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " PITON_SUM_NAMES
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : PITON_SUMS
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right.bits())
                 : "memory");
  } else {
    static_assert(std::is_same_v<T, __half>);
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " PITON_SUM_NAMES
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : PITON_SUMS
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right.bits())
                 : "memory");
  }
}

#undef PITON_SUM_NAMES
#undef PITON_SUMS
#undef PITON_SUMS_OF

}  // namespace piton::cuda
