// Ranks on processors of other kinds compute with other instructions.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "kernels/kernels.h"

namespace piton {

// A line for the log; "" where all ranks have the same kernels. Collective.
std::string kernel_difference(const Kernels& kernels, Communicator& everyone);

}  // namespace piton
