// Helpers for the MPI calls of this folder.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string_view>

namespace piton {

// The largest message in bytes: MPI counts in int. Larger ones are split.
inline constexpr std::int64_t kMessageBytes = 256 << 20;

// Throws Error(kPeer) with MPI's text if `code`, the result of call `what`, is an error.
void check_mpi(int code, std::string_view what);

// The largest tag of messages within `comm` (MPI_TAG_UB; at least 32767).
int largest_mpi_tag(MPI_Comm comm);

}  // namespace piton
