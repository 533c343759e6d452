#include "comm/mpi/library.h"

#include <mpi.h>

namespace piton {

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "";
  const std::string all(text, static_cast<std::size_t>(length));
  return all.substr(0, all.find('\n'));
}

}  // namespace piton
