// Initial weights: a pure function of (seed, canonical name, index), so that every layout starts from
// the same bits.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "ops/parameter.h"

namespace piton {

// This rank's rows of `parameter`, on the host, in its dtype; padding rows are zero.
Tensor initial_rows(const Parameter& parameter, std::uint64_t seed, ThreadPool& threads);

}  // namespace piton
