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

// `bias`: or null.
Value layer_norm(Context& context, const Value& x, Parameter& gain, Parameter* bias,
                 const NormSettings& settings);
Value rms_norm(Context& context, const Value& x, Parameter& gain, const NormSettings& settings);

// An RMS norm of rows that ranks have parts of, one after the other: x [n, h/t] and gain [h/t] are
// those of this rank. The ranks of `group` add up two numbers of each row, one in forward and one
// in backward; every rank must run it for the same rows.
Value rms_norm_over_ranks(Context& context, const Value& x, Parameter& gain,
                          const NormSettings& settings, Communicator& group);

}  // namespace piton
