// Ranks that do not exist: one process acts as rank `rank` of `size`. A collective moves nothing,
// completes when the work before it does, and counts the bytes that it would have sent. With
// kernels/meta this runs real model code for any layout (`plan`). With a clock, collectives take
// the time of their transfers (link_clock.h); that is for real kernels on the host.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/virtual/link_clock.h"

namespace piton {

// `clock` null: collectives take no time. It must outlive the world and its events.
std::unique_ptr<World> make_virtual_world(int rank, int size, LinkClock* clock = nullptr);

}  // namespace piton
