// MPI as what joins ranks: those of mpirun, or of srun with PMIx.
#pragma once

#include <memory>

#include "comm/mpi/job_record.h"
#include "comm/ranks/transport.h"

namespace piton {

std::unique_ptr<Transport> make_mpi_transport(const LaunchedJob& job);

}  // namespace piton
