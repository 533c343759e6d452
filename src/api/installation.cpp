#include "api/installation.h"

#include "base/error.h"
#include "comm/mpi/library.h"
#include "comm/nccl/world.h"
#include "data/records/block_reader.h"
#include "device/cuda/device.h"
#include "kernels/cpu/processor/isa.h"
#include "kernels/cuda/kernels.h"

namespace piton {

InstallationFacts installation_facts(const std::string& isa) {
  InstallationFacts facts{.mpi_library = mpi_library(),
                          .cuda_built = cuda::is_built(),
                          .cuda_devices = cuda::cuda_devices(),
                          .cuda_obstacle = cuda::driver_obstacle(),
                          .nccl_obstacle = nccl_obstacle(),
                          .parquet = can_read_parquet()};
  if (facts.cuda_obstacle.empty()) facts.cuda_obstacle = cuda::library_obstacle();
  for (const cpu::Isa one : cpu::isas_here()) facts.instruction_sets.emplace_back(cpu::name(one));
  if (!facts.instruction_sets.empty()) facts.chosen = cpu::description(cpu::find_isa(isa));
  return facts;
}

}  // namespace piton
