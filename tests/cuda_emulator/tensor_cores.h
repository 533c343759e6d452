// The arithmetic of emulated tensor cores, without a look at each access.
#pragma once

#include <cstdint>

namespace piton::emulator {

// For a lane of a warp: sums += left right, in the fragments of
// kernels/cuda/attention/tensor_cores.cuh. `half`: fp16, else bf16. Sums of products are in double,
// and rounded once for each product.
void multiply_fragments(bool half, float* sums, const std::uint32_t* left,
                        const std::uint32_t* right);

// For a thread of a warpgroup: its sums of 2 rows and 16 columns, of 16 numbers each; as
// multiply_fragments(). Sums [8][4] are those of kernels/cuda/attention/warpgroup.
void multiply_rows(bool half, float (*sums)[4], const std::uint16_t (*rows)[16],
                   const std::uint16_t (*columns)[16], bool adds);

}  // namespace piton::emulator
