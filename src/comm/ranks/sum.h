// The sums (and maxima) of collectives: every element over all members, in order, rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/communicator.h"

namespace piton {

// targets[*][i] = sources[0][i] (+) sources[1][i] (+) ..., from left to right, in fp32 for fp32,
// bf16 and fp16, in fp64 for fp64, in int64 (wrapping) for int64. A maximum with a NaN is NaN.
// A target may be the same memory as a source.
void reduce(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
            std::int64_t elements, std::span<std::byte* const> targets);

}  // namespace piton
