// Launchers that start many processes which know nothing of each other.
#pragma once

namespace piton::cli {

// Throws Error(kUsage) if a launcher (srun, torchrun, MPICH's mpiexec) started several processes
// and none of them was joined to the others, as this world of `ranks` shows: each would be a run of
// its own, all in one folder.
void refuse_unjoined_processes(int ranks);

}  // namespace piton::cli
