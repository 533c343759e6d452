#include "comm/mpi/mpi_call.h"

#include <string>

#include "base/error.h"

namespace piton {

void check_mpi(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(Fault::kPeer, "comm: {} failed: {}", what, std::string(text, length));
}

int largest_mpi_tag(MPI_Comm comm) {
  int* value = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(comm, MPI_TAG_UB, static_cast<void*>(&value), &found),
            "MPI_Comm_get_attr");
  constexpr int kPromised = 32767;  // guaranteed by the MPI standard
  return found != 0 ? *value : kPromised;
}

}  // namespace piton
