#include "api/automatic_kernels.h"

#include <fmt/format.h>

namespace piton {

AutomaticKernels automatic_kernels(const EngineOptions& options, const GpuFacts& gpu) {
  const bool joined = options.meeting.has_value() || !options.launched;
  if (gpu.devices == 0 || !joined) return {"cpu", ""};
  if (options.launched && options.meeting->host_size > gpu.devices) {
    return {"cpu", fmt::format("this host has {} GPU{} for {} ranks", gpu.devices,
                               gpu.devices > 1 ? "s" : "", options.meeting->host_size)};
  }
  if (!gpu.library_obstacle.empty()) return {"cpu", gpu.library_obstacle};
  if (options.meeting && !gpu.nccl_obstacle.empty()) return {"cpu", gpu.nccl_obstacle};
  return {"cuda", ""};
}

}  // namespace piton
