// What every MPI call of this folder goes through.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string_view>

namespace piton {

// The bytes of one message at most: MPI counts in int. Larger ones go in several.
inline constexpr std::int64_t kMessageBytes = 256 << 20;

// Throws Error(kPeer) with MPI's own words if `code` is a failure of `what`.
void check_mpi(int code, std::string_view what);

// The largest tag of messages within `comm` (MPI_TAG_UB; at least 32767).
int largest_mpi_tag(MPI_Comm comm);

}  // namespace piton
