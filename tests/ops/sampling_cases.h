// The cases of drawing tokens of the list in call_cases.h.
#pragma once

#include "call_cases.h"

namespace piton::test {

std::vector<CallCase> sampling_cases(const CaseOptions& options);

}  // namespace piton::test
