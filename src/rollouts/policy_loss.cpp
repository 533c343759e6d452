#include "rollouts/policy_loss.h"

#include <algorithm>
#include <cmath>

namespace piton {

namespace {

// The first term of the loss.
TokenPolicyLoss without_divergence(double advantage, const TokenPolicy& token,
                                   const PolicyClip& clip) {
  const double ratio = std::exp(token.since_written);
  switch (clip.form) {
    case PolicyForm::kClipped: {
      const double gain = advantage * ratio;
      const double bounded = advantage * std::clamp(ratio, 1 - clip.below, 1 + clip.above);
      const bool clipped = bounded < gain;
      return {.loss = -std::min(gain, bounded), .slope = clipped ? 0 : -gain, .clipped = clipped};
    }
    case PolicyForm::kCispo: {
      const double weight = advantage * std::min(ratio, clip.above);
      return {.loss = -weight * token.policy,
              .slope = -weight,
              .clipped = advantage > 0 && ratio > clip.above};
    }
    case PolicyForm::kSapo:
      break;
  }
  const double t = advantage > 0 ? clip.positive_temperature : clip.negative_temperature;
  const double gate = 1 / (1 + std::exp(-t * (ratio - 1)));
  // Where the gate is 1 its derivative is 0, whatever the ratio is.
  const double derivative = gate < 1 ? 4 * gate * (1 - gate) * ratio : 0;
  return {.loss = -advantage * gate * 4 / t, .slope = -advantage * derivative};
}

}  // namespace

TokenPolicyLoss token_policy_loss(double advantage, const TokenPolicy& token,
                                  const PolicyClip& clip) {
  TokenPolicyLoss found = without_divergence(advantage, token, clip);
  found.divergence = std::expm1(token.from_reference) - token.from_reference;
  found.loss += clip.beta * found.divergence;
  found.slope -= clip.beta * std::expm1(token.from_reference);
  return found;
}

}  // namespace piton
