#include "api/planning.h"

#include "comm/virtual/world.h"
#include "device/meta_device.h"
#include "kernels/meta/kernels.h"
#include "plan/recorded_calls.h"

namespace piton {
namespace {

struct ProbedRank {
  RankEstimate estimate;
  PlannedCalls calls;  // only if they are recorded
};

// One rank without memory. `record`: keeps the calls.
ProbedRank probe_rank(const RunPlan& plan, const Machine& machine, int rank, bool record) {
  MetaDevice device;
  MetaKernels kernels(&machine.kernels);
  RecordedCalls recorded(kernels);
  Arena arena(device);
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<World> world = make_virtual_world(rank, plan.mesh.ranks());
  const Machine meta{.world = *world,
                     .device = device,
                     .kernels = record ? static_cast<Kernels&>(recorded) : kernels,
                     .arena = arena,
                     .stream = *stream,
                     .threads = machine.threads,
                     .log = machine.log};
  RankEstimate estimate = estimate_rank(meta, plan);
  return {std::move(estimate), recorded.calls()};
}

}  // namespace

std::vector<RankEstimate> estimate_layout(const RunPlan& plan, const Machine& machine) {
  std::vector<RankEstimate> estimates(static_cast<std::size_t>(plan.mesh.ranks()));
  for (int rank = 0; rank < plan.mesh.ranks(); ++rank) {
    estimates[static_cast<std::size_t>(rank)] =
        probe_rank(plan, machine, rank, /*record=*/false).estimate;
  }
  return estimates;
}

MemoryCounts MachinePlanner::plan_memory(const RunPlan& plan) {
  return probe_rank(plan, machine_, machine_.world.rank(), /*record=*/false).estimate.memory;
}

RecomputeChoice MachinePlanner::choose_recompute(const RunPlan& plan) {
  const ProbeRank probe = [&](const RunPlan& one, int rank) {
    ProbedRank probed = probe_rank(one, machine_, rank, /*record=*/true);
    return RecomputeProbe{probed.estimate.memory.peak_total_bytes, std::move(probed.calls)};
  };
  return piton::choose_recompute(plan, *plan.memory_limit, probe, [&](const KernelCall& call) {
    return seconds_of_call(call, machine_);
  });
}

}  // namespace piton
