// What the closed forms of the papers on schedules assume.
#pragma once

#include "parallel/simulate.h"

namespace piton::test {

inline constexpr double kExact = 1e-9;  // sums of a few hundred numbers near 1 in fp64

// Whole backward twice a forward.
inline const StepTimes kEqual{
    .forward = 1, .backward_input = 1, .backward_weight = 1, .message = 0};

}  // namespace piton::test
