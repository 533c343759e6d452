// The cases of sinks of attention, and of what else gpt-oss has, of the list in call_cases.h.
#pragma once

#include "call_cases.h"

namespace piton::test {

std::vector<CallCase> sink_cases(const CaseOptions& options);

}  // namespace piton::test
