// What the launcher (piton launch, mpirun, torchrun, srun) and the environment tell this process.
#pragma once

#include "api/engine.h"
#include "cli/command.h"

namespace piton::cli {

// Engine options from the general flags and the environment: the ranks to join, PITON_ISA. Throws
// Error(kUsage) if a launcher's variables are no numbers.
EngineOptions engine_options(const GeneralOptions& general);

// True if a launcher started this process as one of several ranks.
bool is_launched();

// The rank that the launcher gave this process, known before ranks meet; 0 without a launcher.
int launched_rank();

// For a command that is about to read standard input, which launchers give to the first rank alone:
// all ranks then read what that one had, once more. Collective. Throws Error(kData) as
// read_unpacked() (data/records/whole_text.h).
void share_standard_input(World& world);

}  // namespace piton::cli
