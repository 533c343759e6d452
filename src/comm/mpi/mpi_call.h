// What every MPI call of this folder goes through.
#pragma once

#include <mpi.h>

#include <string_view>

namespace piton {

// Throws Error(kPeer) with MPI's own words if `code` is a failure of `what`.
void check_mpi(int code, std::string_view what);

// The largest tag of messages within `comm` (MPI_TAG_UB; at least 32767).
int largest_mpi_tag(MPI_Comm comm);

}  // namespace piton
