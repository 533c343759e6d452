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

}  // namespace piton
