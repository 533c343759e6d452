// Some ranks of a world as a world: for models that several groups of ranks hold, each for itself.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/communicator.h"

namespace piton {

// The ranks first .. first + size - 1 of `world`, this rank among them, as ranks 0 .. size - 1.
// What concerns hosts and failures is that of `world`, which must outlive it.
std::unique_ptr<World> make_part_of_world(World& world, int first, int size);

}  // namespace piton
