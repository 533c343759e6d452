#include "rollouts/policy_loss.h"

#include <algorithm>
#include <cmath>

namespace piton {

TokenPolicyLoss token_policy_loss(double advantage, const TokenPolicy& token,
                                  const PolicyClip& clip) {
  const double ratio = std::exp(token.since_written);
  const double gain = advantage * ratio;
  const double bounded = advantage * std::clamp(ratio, 1 - clip.below, 1 + clip.above);
  TokenPolicyLoss found{.divergence = std::expm1(token.from_reference) - token.from_reference,
                        .clipped = bounded < gain};
  found.loss = -std::min(gain, bounded) + clip.beta * found.divergence;
  found.slope = (found.clipped ? 0 : -gain) - clip.beta * std::expm1(token.from_reference);
  return found;
}

}  // namespace piton
