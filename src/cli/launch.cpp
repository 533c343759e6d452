#include "cli/launch.h"

#include <csignal>
#include <cstdlib>

namespace piton::cli {
namespace {

// A signal handler can reach nothing else.
volatile std::sig_atomic_t stop_requests =
    0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

extern "C" void request_stop(int signal) {
  stop_requests = stop_requests + 1;
  if (signal == SIGINT && stop_requests > 1) std::_Exit(128 + SIGINT);
}

bool has(const char* name) { return std::getenv(name) != nullptr; }

}  // namespace

EngineOptions engine_options(const GeneralOptions& general) {
  if (general.threads < 0)
    throw Error(Fault::kUsage, "--threads: got {}, wanted 0 (all cores) or more", general.threads);
  EngineOptions options{.kernels = general.kernels, .threads = general.threads};
  if (const char* isa = std::getenv("PITON_ISA")) options.isa = isa;
  options.launched = is_launched();
  return options;
}

// Open MPI and PMIx launchers set one of these for every rank; a process on its own has none.
bool is_launched() { return has("OMPI_COMM_WORLD_SIZE") || has("PMIX_RANK"); }

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  }
  return 0;
}

StopSignals::StopSignals() {
  stop_requests = 0;
  struct sigaction action {};
  action.sa_handler = request_stop;
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) sigaction(signal, &action, nullptr);
}

StopSignals::~StopSignals() {
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) std::signal(signal, SIG_DFL);
}

bool StopSignals::requested() const { return stop_requests > 0; }

}  // namespace piton::cli
