// The cases of calls in which a pass of decoding does what several others do, of the list in
// call_cases.h: writing to a cache, and linears of gated MLPs.
#pragma once

#include "call_cases.h"
#include "call_runner.h"

namespace piton::test {

std::vector<CallCase> decoding_cases(const CaseOptions& options);

// What runner.run(call) gives if each part of the call is a call: rotations before the rows are
// written to the cache, and a product before its activation.
KernelCall run_in_parts(const KernelCall& call, CallRunner& runner);

}  // namespace piton::test
