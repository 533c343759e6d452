#include "cli/compatibility/launchers.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace piton::cli {
namespace {

// A number from the environment; nullopt if it is not set, or not a number.
std::optional<long> number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view word(text);
  long value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

struct Launcher {
  const char* name;
  const char* size;  // variable that holds the number of processes
  const char* rank;  // variable that each of them has
  long least_rank;   // smallest rank that proves that there are others
};

// A batch script has SLURM_NTASKS and SLURM_PROCID 0 although it is a single process; processes
// started by srun have the size of their step.
constexpr std::array<Launcher, 4> kLaunchers{{
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", 0},
    {"srun", "SLURM_NTASKS", "SLURM_PROCID", 1},
    {"mpiexec of another MPI", "PMI_SIZE", "PMI_RANK", 0},
    {"torchrun", "WORLD_SIZE", "RANK", 0},
}};

}  // namespace

void refuse_unjoined_processes(int ranks) {
  // Open MPI's mpirun gives the number itself, and it may run inside of another launcher.
  if (ranks > 1 || number("OMPI_COMM_WORLD_SIZE")) return;
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<long> size = number(launcher.size);
    const std::optional<long> rank = number(launcher.rank);
    if (!size || *size < 2 || !rank || *rank < launcher.least_rank) continue;
    throw Error(Fault::kUsage,
                "{} started {} processes ({} is set) that are not joined: each would be a separate "
                "run; export MASTER_ADDR, the host of rank 0, or start them with piton launch or "
                "mpirun of Open MPI; if separate runs are what you want, unset {}",
                launcher.name, *size, launcher.size, launcher.size);
  }
}

}  // namespace piton::cli
