// Which MPI this program is linked with.
#pragma once

#include <string>

namespace piton {

// "Open MPI v4.1.4, package: ...", as the library says it, its first line. May be called before MPI
// is initialized.
std::string mpi_library();

}  // namespace piton
