// The activation functions in fp64.
#pragma once

#include "kernels/activation.h"

namespace piton::reference {

double activated(ActivationKind kind, double x);

}  // namespace piton::reference
