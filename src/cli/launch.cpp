#include "cli/launch.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "checkpoint/collective.h"
#include "cli/compatibility/meeting_place.h"
#include "cli/terminal/standard_input.h"
#include "data/records/whole_text.h"

namespace piton::cli {
namespace {

bool has(const char* name) { return std::getenv(name) != nullptr; }

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Open MPI and PMIx launchers set one of these for every rank; a single process has neither.
bool launched_by_mpi() { return has("OMPI_COMM_WORLD_SIZE") || has("PMIX_RANK"); }

std::optional<MeetingPlace> meeting_place() {
  return find_meeting_place(
      [](const char* name) { return has(name) ? std::optional(value_of(name)) : std::nullopt; });
}

// Open MPI's mpirun numbers its jobs in decimal; other launchers use names and have no such files.
LaunchedJob launched_job() {
  const std::string name = value_of("PMIX_NAMESPACE");
  std::uint32_t number = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (name.empty() || code != std::errc() || end != name.data() + name.size()) return {};
  return {.number = fmt::format("{:x}", number), .session = value_of("PMIX_SERVER_TMPDIR")};
}

// Variables that libraries of GPUs read when they start.
//
// Streams share connections to a GPU, 8 by default. In a connection, work of one stream waits
// behind that of another: perhaps for a message whose sender waits for this rank. A run has a
// stream for each group and each boundary of a pipeline, so it takes the most connections that
// there are, also where scripts for Megatron-LM ask for one. And from 2.22 on NCCL connects ranks
// in their first collective, and blocks the host there, unless this variable is 0: then it does so
// when a group is made, where all of its ranks are.
void set_variables_of_gpus() {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/1);
  ::setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
  // A kernel that is loaded when it is first launched waits for those that run. One of them may be
  // the receiver of a message that the sender sends only after this launch.
  if (launched_by_mpi() || has("WORLD_SIZE") || has("SLURM_NTASKS"))
    ::setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/1);
}

// In place of standard input: a file in memory, which has_standard_input() takes for one.
void replace_standard_input(std::string_view content) {
  const int file = ::memfd_create("standard input", MFD_CLOEXEC);
  bool fine = file >= 0;
  for (std::size_t at = 0; fine && at < content.size();) {
    const ssize_t written = ::write(file, content.data() + at, content.size() - at);
    fine = written > 0;
    if (fine) at += static_cast<std::size_t>(written);
  }
  fine = fine && ::lseek(file, 0, SEEK_SET) == 0 && ::dup2(file, STDIN_FILENO) == STDIN_FILENO;
  const std::string why = system_message(errno);
  if (file >= 0) ::close(file);
  if (!fine) throw Error(Fault::kMemory, "standard input: cannot be kept in memory: {}", why);
}

}  // namespace

EngineOptions engine_options(const GeneralOptions& general) {
  EngineOptions options{.kernels = general.kernels,
                        .threads = general.threads,
                        .timeout_seconds = 60 * general.distributed_timeout_minutes};
  if (const char* isa = std::getenv("PITON_ISA")) options.isa = isa;
  options.launched = launched_by_mpi();
  if (options.launched) options.job = launched_job();
  if (general.kernels == "cuda" || general.kernels == "auto") set_variables_of_gpus();
  options.meeting = meeting_place();
  return options;
}

bool is_launched() { return launched_by_mpi() || meeting_place(); }

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  }
  try {
    if (const auto place = meeting_place()) return place->rank;
  } catch (const Error&) {  // the command will say what is wrong
  }
  // Those that nobody joins are refused.
  return has("WORLD_SIZE") ? std::atoi(value_of("RANK").c_str()) : 0;
}

void share_standard_input(World& world) {
  const auto everyone = make_group_of_all(world, "input");
  if (everyone->size() == 1) return;
  const std::string read = found_by_first(
      *everyone, [] { return has_standard_input() ? "+" + read_unpacked("-") : std::string(); });
  if (!read.empty()) replace_standard_input(std::string_view(read).substr(1));
}

}  // namespace piton::cli
