// Detects launchers that started several processes without joining them into one run.
#pragma once

namespace piton::cli {

// `ranks`: the number of ranks that this process sees. Throws Error(kUsage) if it is 1 although a
// launcher (srun, torchrun, MPICH's mpiexec) started several processes: each would be a separate
// run, and all would write to the same folder.
void refuse_unjoined_processes(int ranks);

}  // namespace piton::cli
