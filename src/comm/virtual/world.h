// Ranks that do not exist: one process acts as rank `rank` of `size`, every collective completes
// with the work that it follows and moves nothing, and what it would have sent is counted. With
// kernels/meta it runs real model code for any layout (`plan`).
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace piton {

std::unique_ptr<World> make_virtual_world(int rank, int size);

}  // namespace piton
