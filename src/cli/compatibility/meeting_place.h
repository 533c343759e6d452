// Where the ranks of a run meet, as torchrun, srun, mpirun or mpiexec tell it in the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/rendezvous/meeting_place.h"

namespace piton::cli {

inline constexpr int kLastPort = 65535;

// The value of a variable of the environment; nullopt: not set.
using Lookup = std::function<std::optional<std::string>(const char* name)>;

// nullopt where no launcher has started several processes, or it has on several hosts and
// MASTER_ADDR is not set.
//
//   rank, size of all       RANK, WORLD_SIZE (torchrun); OMPI_COMM_WORLD_* (mpirun);
//                           SLURM_PROCID, SLURM_STEP_NUM_TASKS (srun); PMI_RANK, PMI_SIZE (mpiexec
//                           of MPICH)
//   rank, size on its host  LOCAL_RANK, LOCAL_WORLD_SIZE; the same of the others. Only ranks with
//                           GPUs need the first. Scripts that start ranks by hand leave the second
//                           out, which is needed only where MASTER_ADDR is not set.
//   host of rank 0          MASTER_ADDR; not needed where all ranks are on one host
//   port                    PITON_PORT, MASTER_PORT, or 29500. torchrun listens at MASTER_PORT
//                           itself (TORCHELASTIC_USE_AGENT_STORE): then the next one.
//
// Throws Error(kUsage) for a value that is no such number.
std::optional<MeetingPlace> find_meeting_place(const Lookup& lookup);

}  // namespace piton::cli
