// Checks that two models are the same: weights equal to the bit, and the same logits for a prompt.
//
// A fixed prompt goes through both in fp32, layer by layer, so that only one layer (with the
// embedding, or the head) is in memory at a time. A weight of the result with another type is
// compared with the source's value rounded to that type, and both sides compute with the rounded
// values. So correct results agree to the bit whatever the types are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "checkpoint/tensor_source.h"
#include "model/config.h"
#include "session/machine.h"

namespace piton {

struct ModelSide {
  TensorSource& source;
  const ModelConfig& model;
};

struct VerifyReport {
  std::int64_t tensors = 0;            // compared
  std::vector<std::string> differing;  // "NAME: element 17 is 0.25, the source has 0.5"
  // "NAME: element 17 is 70000, which becomes inf": the first value beyond the result's type.
  std::string beyond_type;
  std::vector<std::string> not_finite;  // tensors of which the source has values that are not
  std::int64_t tokens = 0;              // of the prompt
  double largest_difference = 0;        // of logits; NaN where one side has NaN
  double largest_logit = 0;
  double divergence = 0;  // KL of source from result, nats a token, mean over the prompt

  bool equal() const;
};

// Throws Error(kData) if the tensors of the two have different names or shapes. `exact`: the source
// before anything was rounded; null: `source` itself.
VerifyReport verify(const Machine& machine, const ModelSide& source, const ModelSide& result,
                    Progress& progress, TensorSource* exact = nullptr);

// Only what the two compute of the prompt: for a result whose weights are not the source's.
VerifyReport compare_outputs(const Machine& machine, const ModelSide& source,
                             const ModelSide& result, Progress& progress);

}  // namespace piton
