#include "cli/launch.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "cli/compatibility/meeting_place.h"

namespace piton::cli {
namespace {

bool has(const char* name) { return std::getenv(name) != nullptr; }

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Open MPI's mpirun numbers its jobs in decimal; other launchers use names and have no such files.
LaunchedJob launched_job() {
  const std::string name = value_of("PMIX_NAMESPACE");
  std::uint32_t number = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (name.empty() || code != std::errc() || end != name.data() + name.size()) return {};
  return {.number = fmt::format("{:x}", number), .session = value_of("PMIX_SERVER_TMPDIR")};
}

}  // namespace

EngineOptions engine_options(const GeneralOptions& general) {
  EngineOptions options{.kernels = general.kernels,
                        .threads = general.threads,
                        .timeout_seconds = 60 * general.distributed_timeout_minutes};
  if (const char* isa = std::getenv("PITON_ISA")) options.isa = isa;
  options.launched = is_launched();
  if (options.launched) options.job = launched_job();
  // Ranks that have no GPU are joined by MPI alone.
  if (general.kernels == "cuda" || general.kernels == "auto") {
    options.meeting = find_meeting_place(
        [](const char* name) { return has(name) ? std::optional(value_of(name)) : std::nullopt; });
  }
  return options;
}

// Open MPI and PMIx launchers set one of these for every rank; a single process has neither.
bool is_launched() { return has("OMPI_COMM_WORLD_SIZE") || has("PMIX_RANK"); }

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  }
  // torchrun's are joined where they have GPUs, and refused elsewhere.
  return has("WORLD_SIZE") ? std::atoi(value_of("RANK").c_str()) : 0;
}

}  // namespace piton::cli
