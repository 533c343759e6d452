#include "cli/launch.h"

#include <cstdlib>

namespace piton::cli {
namespace {

bool has(const char* name) { return std::getenv(name) != nullptr; }

}  // namespace

EngineOptions engine_options(const GeneralOptions& general) {
  EngineOptions options{.kernels = general.kernels,
                        .threads = general.threads,
                        .timeout_seconds = 60 * general.distributed_timeout_minutes};
  if (const char* isa = std::getenv("PITON_ISA")) options.isa = isa;
  // Open MPI and PMIx launchers set one of these for every rank; a process on its own has none.
  options.launched = has("OMPI_COMM_WORLD_SIZE") || has("PMIX_RANK");
  return options;
}

}  // namespace piton::cli
