#include "api/engine.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "api/automatic_kernels.h"
#include "api/device_peak_meter.h"
#include "api/planning.h"
#include "comm/mpi/library.h"
#include "comm/mpi/world.h"
#include "comm/nccl/world.h"
#include "comm/sockets/world.h"
#include "device/cuda/device.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/peak.h"
#include "kernels/cuda/kernels.h"
#include "kernels/reference/kernels.h"

namespace piton {
namespace {

constexpr std::string_view kCuda = "cuda";

// Libraries are opened only where there is a GPU.
GpuFacts gpu_facts(const EngineOptions& options) {
  GpuFacts gpu{.devices = cuda::cuda_devices()};
  if (gpu.devices == 0) return gpu;
  gpu.library_obstacle = cuda::library_obstacle();
  if (options.meeting) gpu.nccl_obstacle = nccl_obstacle();
  return gpu;
}

struct ChosenOptions {
  EngineOptions options;
  std::string obstacle;  // why `auto` takes no GPU of this machine; "": it does, or there is none
};

ChosenOptions chosen(EngineOptions options) {
  if (options.kernels != "auto") return {std::move(options), ""};
  AutomaticKernels automatic = automatic_kernels(options, gpu_facts(options));
  options.kernels = std::move(automatic.kernels);
  return {std::move(options), std::move(automatic.obstacle)};
}

std::unique_ptr<Device> make_cuda_device(const EngineOptions& options) {
  if (!options.meeting) {
    auto device = cuda::make_device();
    if (!options.launched) return device;
    throw Error(Fault::kUsage,
                "--kernels cuda: the ranks of mpirun on several hosts meet at MASTER_ADDR, which "
                "is not set; export the host of rank 0 (mpirun -x MASTER_ADDR=HOST), or use "
                "--kernels cpu on {}",
                device->name());
  }
  // A launcher may show each rank only its own GPU.
  const int devices = cuda::cuda_devices();
  const int rank = options.meeting->host_rank;
  if (rank < 0) {
    throw Error(Fault::kUsage,
                "--kernels cuda: rank {} does not know its GPU; set LOCAL_RANK, its number on its "
                "host, and LOCAL_WORLD_SIZE, as torchrun does",
                options.meeting->rank);
  }
  if (devices > 1 && rank >= devices) {
    throw Error(Fault::kUsage,
                "--kernels cuda: rank {} is number {} of its host, which has {} GPUs; start at "
                "most {} ranks a host",
                options.meeting->rank, rank, devices, devices);
  }
  return cuda::make_device(devices == 1 ? 0 : rank);
}

std::unique_ptr<World> make_world(const EngineOptions& options, Device& device) {
  if (options.kernels == kCuda && options.meeting) {
    return make_nccl_world(
        device,
        {.place = *options.meeting, .timeout_seconds = options.timeout_seconds, .library = ""});
  }
  const RankOptions ranks{.timeout_seconds = options.timeout_seconds};
  if (options.launched && !mpi_library().empty()) return make_mpi_world(device, ranks, options.job);
  if (options.meeting) return make_socket_world(device, ranks, *options.meeting);
  if (options.launched) {
    throw Error(Fault::kUsage,
                "ranks: this build has no MPI, so those of mpirun on several hosts meet at "
                "MASTER_ADDR, which is not set; export the host of rank 0 (mpirun -x "
                "MASTER_ADDR=HOST), or start ranks by piton launch");
  }
  return make_single_world(device);
}

std::unique_ptr<Kernels> make_kernels(const EngineOptions& options, Device& device,
                                      ThreadPool& threads) {
  if (options.kernels == kCuda) return cuda::make_kernels(device);
  if (options.kernels == "reference") return make_reference_kernels();
  return make_cpu_kernels(threads, options.isa);
}

}  // namespace

bool has_kernels(const std::string& kernels) {
  return kernels == "cpu" || kernels == "reference" || kernels == "auto" ||
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
  std::unique_ptr<PeakMeter> peak;
  std::optional<Machine> machine;
  std::optional<MachinePlanner> planner;
};

Engine::Engine(const EngineOptions& asked, Log& log) : state_(std::make_unique<State>()) {
  const ChosenOptions choice_of_back_end = chosen(asked);
  const EngineOptions& options = choice_of_back_end.options;
  State& state = *state_;
  if (options.kernels != kCuda &&
      !has_kernels(options.kernels)) {  // if CUDA cannot run, make_cuda_device() reports why
    throw Error(Fault::kUsage, "--kernels: got {}, wanted reference, cpu, cuda or auto",
                options.kernels);
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
  state.world = make_world(options, device);
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
  state.kernels->set_workspace(&*state.arena);
  state.stream = device.make_stream();
  if (host != nullptr) {
    state.peak = std::make_unique<CpuPeakMeter>(*state.threads, options.isa);
  } else {
    state.peak = std::make_unique<DevicePeakMeter>(device, *state.kernels);
  }
  state.machine.emplace(Machine{.world = *state.world,
                                .device = device,
                                .kernels = *state.kernels,
                                .arena = *state.arena,
                                .stream = *state.stream,
                                .threads = *state.threads,
                                .log = log,
                                .peak = state.peak.get()});
  state.planner.emplace(*state.machine);
  if (state.world->rank() == 0) {
    const std::string choice = state.kernels->choice();
    if (options.kernels == kCuda && state.world->size() > 1) {
      log.info("communication: NCCL; sums over ranks have its order and rounding");
    }
    if (!choice_of_back_end.obstacle.empty()) {
      log.warning(
          fmt::format("kernels: auto takes the CPU and no GPU: {}", choice_of_back_end.obstacle));
    }
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
