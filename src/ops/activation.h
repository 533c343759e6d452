// Activations as tape ops (kernels/activation.h).
#pragma once

#include "ops/tape.h"

namespace piton {

// The way back of y = act(x) [n, f] that the product which made x has computed (ops/linear.h).
Value activated(Context& context, const Value& x, const Tensor& y, ActivationKind kind);
Value gated_activation(Context& context, const Value& gate_up,
                       ActivationKind kind);  // [n, 2f] -> [n, f]

}  // namespace piton
