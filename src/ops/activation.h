// Activations as tape ops (kernels/activation.h).
#pragma once

#include "ops/tape.h"

namespace piton {

// Records the backward of y = act(x), both [n, f]. The product that computed x has already computed
// y (ops/linear/linear.h). Returns y. `used`: of x, y and their gradients (rows_used(),
// kernels/call.h), here and below.
Value activated(Context& context, const Value& x, const Tensor& y, ActivationKind kind,
                const Tensor& used = {});
// x [n, f] -> act(x) [n, f].
Value activation_of(Context& context, const Value& x, ActivationKind kind, const Tensor& used = {});
// gate_up [n, 2f] -> act(gate) * up [n, f]: gate is the first f columns, up the others. Backward
// computes it again for the op that keeps it if Context::recompute asks for it.
Value gated_activation(Context& context, const Value& gate_up, ActivationKind kind,
                       const GateRule& rule = {}, const Tensor& used = {});

// x, contiguous -> tanh(x), of its shape and dtype. For a few rows: it is computed in fp32 (fp64
// for fp64) from a copy.
Value tanh_of(Context& context, const Value& x);

}  // namespace piton
