// The attention cases of the list in call_cases.h, and larger cases for single tests.
#pragma once

#include "call_cases.h"

namespace piton::test {

std::vector<CallCase> attention_cases(const CaseOptions& options);

// Every width of heads that models have, and an odd one, with lengths around the edges of tiles.
std::vector<CallCase> attention_edge_cases(const CaseOptions& options);

}  // namespace piton::test
