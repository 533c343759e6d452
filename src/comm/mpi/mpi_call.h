// What every MPI call of this folder goes through.
#pragma once

#include <mpi.h>

#include <string_view>

namespace piton {

// Throws Error(kPeer) with MPI's own words if `code` is a failure of `what`.
void check_mpi(int code, std::string_view what);

}  // namespace piton
