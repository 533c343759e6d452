// The z-loss of a router (kernels/experts.h, RouterZLoss).
#pragma once

#include "ops/tape.h"

namespace piton {

// Adds the sum over the rows of logits [n, experts] to context.balance.z_sum, if there is one. The
// gradient of `factor` times it, times context.balance.scale, is added in backward.
void add_z_loss(Context& context, const Value& logits, double factor);

}  // namespace piton
