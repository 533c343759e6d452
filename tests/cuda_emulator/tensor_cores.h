// The arithmetic of emulated tensor cores, without a look at each access.
#pragma once

#include <cstdint>

namespace piton::emulator {

// For a lane of a warp: sums += left right, in the fragments of
// kernels/cuda/attention/tensor_cores.cuh. `half`: fp16, else bf16. Sums of products are in double,
// and rounded once for each product.
void multiply_fragments(bool half, float* sums, const std::uint32_t* left,
                        const std::uint32_t* right);

}  // namespace piton::emulator
