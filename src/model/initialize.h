// Initial weights. Each element depends only on the seed, the name of the canonical tensor and its
// index in that tensor, so every layout starts from the same bits.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "ops/parameter.h"

namespace piton {

// Writes this rank's rows of `parameter` to `rows`: a contiguous host tensor with the dtype and the
// local shape of the parameter. Padding rows become zero.
void write_initial_rows(const Parameter& parameter, std::uint64_t seed, ThreadPool& threads,
                        const Tensor& rows);

}  // namespace piton
