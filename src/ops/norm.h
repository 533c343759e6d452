// Layer and RMS norm as tape ops (kernels/norm.h, which explains the offset of gains). x [n, h],
// gain and bias [h] -> [n, h]. `again`: backward computes the result again for the op that keeps
// it.
#pragma once

#include "ops/tape.h"

namespace piton {

Value layer_norm(Context& context, const Value& x, Parameter& gain, Parameter& bias, double eps,
                 double gain_offset = 0, bool again = false);
Value rms_norm(Context& context, const Value& x, Parameter& gain, double eps,
               double gain_offset = 0, bool again = false);

}  // namespace piton
