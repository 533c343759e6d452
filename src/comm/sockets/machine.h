// Which ranks can share memory.
#pragma once

#include <string>

namespace piton {

// The same text in processes that can map each other's memory: those of one user, on one running
// kernel, that see each other's process numbers. Containers of a machine usually do not.
std::string machine_name();

}  // namespace piton
