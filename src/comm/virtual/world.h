// Ranks that do not exist: one process acts as rank `rank` of `size`. A collective moves nothing,
// completes when the work before it does, and counts the bytes that it would have sent. With
// kernels/meta this runs real model code for any layout (`plan`).
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace piton {

std::unique_ptr<World> make_virtual_world(int rank, int size);

}  // namespace piton
