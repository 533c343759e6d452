// Cases of layers with a state of fixed size.
#pragma once

#include "call_cases.h"

namespace piton::test {

std::vector<CallCase> recurrent_cases(const CaseOptions& options);

}  // namespace piton::test
