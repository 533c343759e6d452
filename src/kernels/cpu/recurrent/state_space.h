// Forward of a state space by chunks of rows.
#pragma once

#include <vector>

#include "kernels/cpu/context.h"
#include "kernels/cpu/recurrent/text_parts.h"
#include "kernels/recurrent/delta_rule.h"

namespace piton::cpu {

// Of `parts` of the call's rows.
void state_space_forward(CpuContext& context, const DeltaRuleForward& call,
                         const std::vector<TextPart>& parts);

}  // namespace piton::cpu
