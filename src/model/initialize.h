// Initial weights: a pure function of (seed, canonical name, index), so that every layout starts
// from the same bits.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "ops/parameter.h"

namespace piton {

// Writes this rank's rows of `parameter`: `rows` is on the host, of its dtype and shape,
// contiguous. Padding rows are zero.
void write_initial_rows(const Parameter& parameter, std::uint64_t seed, ThreadPool& threads,
                        const Tensor& rows);

}  // namespace piton
