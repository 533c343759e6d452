// What the launcher (mpirun, srun with PMIx) and the user's environment say about this process. The
// only reader of the environment.
#pragma once

#include "api/engine.h"
#include "cli/command.h"

namespace piton::cli {

// Engine options from the general flags and the environment: the ranks to join, PITON_ISA.
EngineOptions engine_options(const GeneralOptions& general);

}  // namespace piton::cli
