// Every kernel call as plain loops: the specification, with which tests compare all other back
// ends.
//
// Inputs of any floating type are widened to double, the formula in the call's header is computed
// in double in the written order, and each result is rounded once. So an fp64 call is accurate to a
// few ulps of double, and an fp32 or bf16 call to one rounding. Runs on the calling thread.
#pragma once

#include <memory>

#include "kernels/kernels.h"

namespace piton {

// Host memory only. packed_bytes() is 0: weights are plain rows. row_tile() is 1.
std::unique_ptr<Kernels> make_reference_kernels();

}  // namespace piton
