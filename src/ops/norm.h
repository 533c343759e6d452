// Layer and RMS norm as tape ops (kernels/norm.h, which explains the offset of gains). x [n, h],
// gain and bias [h] -> [n, h], of the type of the gain; x may be fp32 where that is narrower.
#pragma once

#include "ops/tape.h"

namespace piton {

struct NormSettings {
  double eps = 0;  // is added to the variance (mean square)
  double gain_offset = 0;
  bool again = false;  // backward computes the result again for the op that keeps it
};

Value layer_norm(Context& context, const Value& x, Parameter& gain, Parameter& bias,
                 const NormSettings& settings);
Value rms_norm(Context& context, const Value& x, Parameter& gain, const NormSettings& settings);

}  // namespace piton
