// The cases of mixtures of experts of the list in call_cases.h: routing, sums over experts, and
// linears of several experts.
#pragma once

#include "call_cases.h"

namespace piton::test {

std::vector<CallCase> expert_cases(const CaseOptions& options);

}  // namespace piton::test
