// Activations as tape ops (kernels/activation.h).
#pragma once

#include "ops/tape.h"

namespace piton {

Value activation(Context& context, const Value& x, ActivationKind kind);          // [n, f]
Value gated_activation(Context& context, const Value& gate_up, ActivationKind kind);  // [n, 2f] -> [n, f]

}  // namespace piton
