#include "bench/timing.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

namespace piton {

double Samples::best() const {
  PITON_ASSERT(!seconds.empty());
  return *std::min_element(seconds.begin(), seconds.end());
}

double Samples::spread() const {
  return *std::max_element(seconds.begin(), seconds.end()) / best() - 1;
}

double seconds_of(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void sample(Samples& samples, const std::function<void()>& work) {
  double best = seconds_of(work);
  if (best < 5e-3) {
    for (int i = 0; i < 2; ++i) best = std::min(best, seconds_of(work));
  }
  samples.seconds.push_back(best);
}

void PeakSamples::sample() {
  if (machine_.peak == nullptr) return;
  best_ = std::max(best_, machine_.peak->flops(dtype_));
  best_loading_ = std::max(best_loading_, machine_.peak->loading_flops(dtype_));
}

Tensor random_tensor(const Machine& machine, DType dtype, const Shape& shape) {
  const Tensor source = host_tensor(DType::kF32, shape);
  auto* data = source.data<float>();
  std::uint64_t state = 1;
  for (std::int64_t i = 0; i < source.elements(); ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX generator
    data[i] = static_cast<float>(static_cast<double>(state >> 33) / 1073741824.0 - 1);
  }
  const Tensor wide = machine.arena.allocate(DType::kF32, shape, MemoryKind::kWorkspace);
  machine.device.upload(source.raw(), wide, machine.stream);
  if (dtype == DType::kF32) return wide;
  const Tensor tensor = machine.arena.allocate(dtype, shape, MemoryKind::kWorkspace);
  machine.kernels.run(Copy{.dst = tensor, .src = wide}, machine.stream);
  machine.stream.synchronize();
  return tensor;
}

Tensor zero_tensor(const Machine& machine, DType dtype, const Shape& shape) {
  const Tensor tensor = machine.arena.allocate(dtype, shape, MemoryKind::kWorkspace);
  machine.device.zero(tensor, machine.stream);
  return tensor;
}

void run_alone(const Machine& machine, const KernelCall& call) {
  machine.kernels.run(call, machine.stream);
  machine.stream.synchronize();
}

// Not getrusage(): its maximum includes the process that started this one.
std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  const std::string key = "VmHWM:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(key.size())) * 1024;
  }
  return 0;
}

}  // namespace piton
