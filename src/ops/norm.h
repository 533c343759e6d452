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

// A norm that multiplies by nothing and adds nothing.
struct PlainNorm {
  DType dtype = DType::kF32;      // of the result
  bool centered = false;          // a layer norm, else an RMS norm
  Communicator* group = nullptr;  // as in rms_norm_over_ranks(); null: rows are whole
};
// The gain offset of the settings is ignored.
Value norm_without_gain(Context& context, const Value& x, const PlainNorm& kind,
                        const NormSettings& settings);

}  // namespace piton
