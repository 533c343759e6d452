#include "rollouts/policy_loss.h"

#include <cmath>

namespace piton {

TokenPolicyLoss token_policy_loss(double advantage, double beta, double difference) {
  const double divergence = std::expm1(difference) - difference;
  return {.loss = -advantage + beta * divergence,
          .slope = -advantage - beta * std::expm1(difference),
          .divergence = divergence};
}

}  // namespace piton
