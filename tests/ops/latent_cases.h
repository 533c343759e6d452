// Calls on caches of latents (kernels/cached_attention.h).
#pragma once

#include <vector>

#include "call_cases.h"

namespace piton::test {

std::vector<CallCase> latent_cases(const CaseOptions& options);

}  // namespace piton::test
