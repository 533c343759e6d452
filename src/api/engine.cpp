#include "api/engine.h"

#include <algorithm>
#include <optional>

#include "comm/mpi/world.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/peak.h"
#include "kernels/reference/kernels.h"

namespace piton {
namespace {

std::unique_ptr<Kernels> make_kernels(const EngineOptions& options, ThreadPool& threads) {
  if (options.kernels == "reference") return make_reference_kernels();
  return make_cpu_kernels(threads, options.isa);
}

}  // namespace

bool has_kernels(const std::string& kernels) { return kernels == "cpu" || kernels == "reference"; }

struct Engine::State {
  HostDevice device;
  std::unique_ptr<World> world;
  std::optional<ThreadPool> threads;
  std::unique_ptr<Kernels> kernels;
  std::optional<Arena> arena;
  std::unique_ptr<Stream> stream;
  std::optional<Machine> machine;
};

Engine::Engine(const EngineOptions& options, Log& log) : state_(std::make_unique<State>()) {
  State& state = *state_;
  if (!has_kernels(options.kernels)) {
    throw Error(Fault::kUsage, "--kernels: this build has no {}; wanted cpu or reference", options.kernels);
  }
  if (options.launched) {
    state.world = make_mpi_world(state.device, {.timeout_seconds = options.timeout_seconds});
  } else {
    state.world = make_single_world(state.device);
  }
  // One rank's cores apart from another's; the caller is thread 0.
  const std::vector<int> cores =
      cores_of_rank(available_cores(), state.world->host_rank(), state.world->host_size());
  const int threads = options.threads > 0 ? options.threads : static_cast<int>(cores.size());
  const bool pinned = threads <= static_cast<int>(cores.size());
  state.threads.emplace(threads, pinned ? std::vector<int>(cores.begin(), cores.begin() + threads) : std::vector<int>{});
  state.kernels = make_kernels(options, *state.threads);
  state.arena.emplace(state.device);
  state.stream = state.device.make_stream();
  state.machine.emplace(Machine{.world = *state.world, .device = state.device, .kernels = *state.kernels,
                                .arena = *state.arena, .stream = *state.stream, .threads = *state.threads,
                                .log = log,
                                .measure_peak_flops = [this](DType dtype) {
                                  return peak_flops(*state_->threads, dtype, 0.05);
                                }});
  if (state.world->rank() == 0) {
    log.info(fmt::format("kernels: {}; {} rank{}, {} thread{} each", state.kernels->name(), state.world->size(),
                         state.world->size() > 1 ? "s" : "", threads, threads > 1 ? "s" : ""));
  }
}

Engine::~Engine() = default;

Machine& Engine::machine() { return *state_->machine; }

World& Engine::world() { return *state_->world; }

}  // namespace piton
