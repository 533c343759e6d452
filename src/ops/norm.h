// Layer and RMS norm as tape ops (kernels/norm.h). x [n, h], gain and bias [h] -> [n, h].
#pragma once

#include "ops/tape.h"

namespace piton {

Value layer_norm(Context& context, const Value& x, Parameter& gain, Parameter& bias, double eps);
Value rms_norm(Context& context, const Value& x, Parameter& gain, double eps);

}  // namespace piton
