// RMS norms of the groups of heads of a state space.
#pragma once

#include "ops/norm.h"

namespace piton {

// RMS norms of the `groups` parts of each row, one after the other: x [n, groups w], gain
// [groups w]. Without NormSettings::again.
Value rms_norm_of_groups(Context& context, const Value& x, Parameter& gain, std::int64_t groups,
                         const NormSettings& settings);

}  // namespace piton
