// Detects launchers whose processes do not know each other.
#pragma once

namespace piton::cli {

// Throws Error(kUsage) if a launcher (srun, torchrun, MPICH's mpiexec) started several processes
// that were not joined, as this world of `ranks` shows: each would be a separate run, all in one
// folder.
void refuse_unjoined_processes(int ranks);

}  // namespace piton::cli
