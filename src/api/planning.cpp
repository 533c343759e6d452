#include "api/planning.h"

#include "comm/virtual/simulated_clock.h"
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
  constexpr int kMostPlanned = 128;
  const int ranks = plan.mesh.ranks();
  const int of_stage = ranks / plan.mesh[Axis::kPipeline];
  std::vector<RankEstimate> estimates;
  for (int rank = 0; rank < ranks; ++rank) {
    if (ranks > kMostPlanned && rank % of_stage != 0) {
      estimates.push_back(estimates[static_cast<std::size_t>(rank - rank % of_stage)]);
    } else {
      estimates.push_back(probe_rank(plan, machine, rank, /*record=*/false).estimate);
    }
  }
  return estimates;
}

std::vector<RankEstimate> estimate_stages(const RunPlan& plan, const Machine& machine) {
  const int stages = plan.mesh[Axis::kPipeline];
  std::vector<RankEstimate> estimates;
  for (int stage = 0; stage < stages; ++stage) {
    const int rank = plan.mesh.ranks() / stages * stage;
    estimates.push_back(probe_rank(plan, machine, rank, /*record=*/false).estimate);
  }
  return estimates;
}

StepTime estimate_time(const RunPlan& plan, const Machine& machine, const PlannedSpeeds& speeds,
                       KnownTimes& known) {
  const auto link = [&](double bytes_per_second) {
    constexpr double kNoTime = 1e30;
    return LinkSpeed{.latency_seconds = bytes_per_second > 0 ? speeds.latency_seconds : 0,
                     .bytes_per_second = bytes_per_second > 0 ? bytes_per_second : kNoTime};
  };
  const auto seconds = [&](const KernelCall& call) {
    return speeds.device ? seconds_at(*speeds.device, call) : seconds_of_call(call, machine);
  };
  return estimate_step_time(plan, [&](const RunPlan& one, int rank) {
    SimulatedClock clock({.within_hosts = link(speeds.link_bytes_per_second),
                          .between_hosts = link(speeds.host_link_bytes_per_second),
                          .ranks_of_host = speeds.ranks_of_host});
    MetaDevice device;
    // Other devices read plain rows.
    MetaKernels kernels(speeds.device ? nullptr : &machine.kernels);
    TimedCalls timed(kernels, known, seconds, [&](double more) { clock.advance(more); });
    Arena arena(device);
    const std::unique_ptr<Stream> stream = device.make_stream();
    const std::unique_ptr<World> world = make_virtual_world(rank, one.mesh.ranks(), &clock);
    const Machine meta{.world = *world,
                       .device = device,
                       .kernels = timed,
                       .arena = arena,
                       .stream = *stream,
                       .threads = machine.threads,
                       .log = machine.log};
    double work_before = 0, waited_before = 0;
    estimate_rank(meta, one, [&] {
      work_before = timed.work_seconds();
      waited_before = clock.times().waited_seconds;
    });
    return RankSeconds{.work = timed.work_seconds() - work_before,
                       .waited = clock.times().waited_seconds - waited_before};
  });
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
