// The cases of products in FP8 of the list in call_cases.h.
#pragma once

#include "call_cases.h"

namespace piton::test {

std::vector<CallCase> float8_cases(const CaseOptions& options);

}  // namespace piton::test
