#include "api/engine.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "api/planning.h"
#include "comm/mpi/world.h"
#include "device/cuda/device.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/peak.h"
#include "kernels/cuda/kernels.h"
#include "kernels/reference/kernels.h"

namespace piton {
namespace {

constexpr std::string_view kCuda = "cuda";

std::unique_ptr<Device> make_cuda_device(const EngineOptions& options) {
  auto device = cuda::make_device();
  if (options.launched) {
    throw Error(Fault::kUsage,
                "--kernels cuda: no communicator of this build reaches the memory of {}; run one "
                "rank without "
                "mpirun, or use --kernels cpu",
                device->name());
  }
  return device;
}

std::unique_ptr<Kernels> make_kernels(const EngineOptions& options, const Device& device,
                                      ThreadPool& threads) {
  if (options.kernels == kCuda) return cuda::make_kernels(device);
  if (options.kernels == "reference") return make_reference_kernels();
  return make_cpu_kernels(threads, options.isa);
}

}  // namespace

bool has_kernels(const std::string& kernels) {
  return kernels == "cpu" || kernels == "reference" ||
         (kernels == kCuda && cuda::cuda_devices() > 0);
}

namespace {

class CpuPeakMeter final : public PeakMeter {
 public:
  CpuPeakMeter(ThreadPool& threads, std::string isa) : threads_(threads), isa_(std::move(isa)) {}

  double flops(DType dtype) override { return peak_flops(threads_, dtype, isa_, kSeconds); }
  double loading_flops(DType dtype) override {
    return loading_peak_flops(threads_, dtype, isa_, kSeconds);
  }

 private:
  static constexpr double kSeconds = 0.05;  // of one measurement
  ThreadPool& threads_;
  std::string isa_;
};

}  // namespace

struct Engine::State {
  const int exceptions = std::uncaught_exceptions();
  std::unique_ptr<Device> device;
  std::unique_ptr<World> world;
  std::optional<ThreadPool> threads;
  std::unique_ptr<Kernels> kernels;
  std::optional<Arena> arena;
  std::unique_ptr<Stream> stream;
  std::optional<CpuPeakMeter> peak;
  std::optional<Machine> machine;
  std::optional<MachinePlanner> planner;
};

Engine::Engine(const EngineOptions& options, Log& log) : state_(std::make_unique<State>()) {
  State& state = *state_;
  if (options.kernels != kCuda &&
      !has_kernels(options.kernels)) {  // if CUDA cannot run, make_cuda_device() reports why
    throw Error(Fault::kUsage, "--kernels: got {}, wanted reference, cpu or cuda", options.kernels);
  }
  HostDevice* host = nullptr;
  if (options.kernels == kCuda) {
    state.device = make_cuda_device(options);
  } else {
    auto made = std::make_unique<HostDevice>();
    host = made.get();
    state.device = std::move(made);
  }
  Device& device = *state.device;
  if (options.launched) {
    state.world =
        make_mpi_world(device, {.job = options.job, .timeout_seconds = options.timeout_seconds});
  } else {
    state.world = make_single_world(device);
  }
  // The ranks of a host get different cores. The calling thread is thread 0.
  const std::vector<int> cores =
      cores_of_rank(available_cores(), state.world->host_rank(), state.world->host_size());
  const int threads = options.threads > 0 ? options.threads : static_cast<int>(cores.size());
  const bool pinned = threads <= static_cast<int>(cores.size());
  state.threads.emplace(threads, pinned ? std::vector<int>(cores.begin(), cores.begin() + threads)
                                        : std::vector<int>{});
  if (host != nullptr) host->share_work(*state.threads);
  state.kernels = make_kernels(options, device, *state.threads);
  state.arena.emplace(device);
  state.stream = device.make_stream();
  state.peak.emplace(*state.threads, options.isa);
  state.machine.emplace(Machine{.world = *state.world,
                                .device = device,
                                .kernels = *state.kernels,
                                .arena = *state.arena,
                                .stream = *state.stream,
                                .threads = *state.threads,
                                .log = log,
                                .peak = &*state.peak});
  state.planner.emplace(*state.machine);
  if (state.world->rank() == 0) {
    const std::string choice = state.kernels->choice();
    // One line on every processor.
    log.info(fmt::format("kernels: {}; {} rank{}, {} thread{} each{}{}", state.kernels->name(),
                         state.world->size(), state.world->size() > 1 ? "s" : "", threads,
                         threads > 1 ? "s" : "", choice.empty() ? "" : "; ", choice));
  }
}

Engine::~Engine() {
  // Destroyed because of an exception: ends pending collectives and informs the other ranks, unless
  // fail() was called before, with the reason.
  if (std::uncaught_exceptions() > state_->exceptions) {
    state_->world->fail(static_cast<int>(Fault::kPeer), "");
  }
}

Machine& Engine::machine() { return *state_->machine; }

RunPlanner& Engine::planner() { return *state_->planner; }

World& Engine::world() { return *state_->world; }

}  // namespace piton
