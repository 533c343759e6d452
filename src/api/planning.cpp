#include "api/planning.h"

#include "base/error.h"
#include "comm/virtual/simulated_clock.h"
#include "comm/virtual/world.h"
#include "device/meta_device.h"
#include "kernels/meta/kernels.h"
#include "plan/recorded_calls.h"

namespace piton {
namespace {

// Weights of a rank above this are not in its caches when a step comes back to them.
constexpr std::int64_t kLargestCaches = 16 << 20;

// The machine of one planned rank: no memory, no products, and a world of `ranks` in which nothing
// travels. `clock`: takes the time of its messages; or null.
class MetaRank {
 public:
  MetaRank(const Machine& real, Kernels& kernels, int rank, int ranks,
           SimulatedClock* clock = nullptr)
      : world_(make_virtual_world(rank, ranks, clock)),
        machine_{.world = *world_,
                 .device = device_,
                 .kernels = kernels,
                 .arena = arena_,
                 .stream = *stream_,
                 .threads = real.threads,
                 .log = real.log} {
    kernels.set_workspace(&arena_);
  }
  ~MetaRank() { machine_.kernels.set_workspace(nullptr); }
  MetaRank(const MetaRank&) = delete;
  MetaRank& operator=(const MetaRank&) = delete;

  const Machine& machine() const { return machine_; }

 private:
  MetaDevice device_;
  Arena arena_{device_};
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  std::unique_ptr<World> world_;
  Machine machine_;
};

struct ProbedRank {
  RankEstimate estimate;
  PlannedCalls calls;  // only if they are recorded
};

// `record`: keeps the calls.
ProbedRank probe_rank(const RunPlan& plan, const Machine& machine, int rank, bool record) {
  MetaKernels kernels(&machine.kernels);
  RecordedCalls recorded(kernels);
  const MetaRank meta(machine, record ? static_cast<Kernels&>(recorded) : kernels, rank,
                      plan.mesh.ranks());
  RankEstimate estimate = estimate_rank(meta.machine(), plan);
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

RankEstimate estimate_own_rank(const RunPlan& plan, const Machine& machine) {
  return probe_rank(plan, machine, machine.world.rank(), /*record=*/false).estimate;
}

void check_layout(const RunPlan& plan) {
  const auto world = make_virtual_world(0, plan.mesh.ranks());
  Mesh mesh(*world, plan.mesh);
  const ModelLayout layout{.mesh = &mesh, .options = plan.session.layout};
  layout.check(plan.session.model,
               plan.mesh[Axis::kPipeline] * chunks_of_each_stage(plan.session.schedule));
}

StepTime estimate_time(const RunPlan& plan, const Machine& machine, const PlannedSpeeds& speeds,
                       KnownTimes& known) {
  if (plan.mesh[Axis::kExpert] > 1) {
    throw Error(Fault::kUsage,
                "plan: the time of a step with --expert-model-parallel-size depends on how many "
                "tokens choose the experts of each rank; leave out --step-time or --search");
  }
  const auto link = [&](double bytes_per_second) {
    constexpr double kNoTime = 1e30;
    return LinkSpeed{.latency_seconds = bytes_per_second > 0 ? speeds.latency_seconds : 0,
                     .bytes_per_second = bytes_per_second > 0 ? bytes_per_second : kNoTime};
  };
  const std::int64_t weights = plan.session.model.parameters() *
                               size_bytes(plan.session.model.dtype) /
                               (plan.mesh[Axis::kTensor] * plan.mesh[Axis::kPipeline]);
  const bool cold = weights > kLargestCaches;
  const auto seconds = [&](const KernelCall& call) {
    return speeds.device ? seconds_at(*speeds.device, call) : seconds_of_call(call, machine, cold);
  };
  return estimate_step_time(plan, [&](const RunPlan& one, int rank) {
    SimulatedClock clock({.within_hosts = link(speeds.link_bytes_per_second),
                          .between_hosts = link(speeds.host_link_bytes_per_second),
                          .ranks_of_host = speeds.ranks_of_host});
    // Other devices read plain rows.
    MetaKernels kernels(speeds.device ? nullptr : &machine.kernels);
    TimedCalls timed(kernels, known, seconds, [&](double more) { clock.advance(more); });
    const MetaRank meta(machine, timed, rank, one.mesh.ranks(), &clock);
    double work_before = 0, waited_before = 0;
    estimate_rank(meta.machine(), one, [&] {
      work_before = timed.work_seconds();
      waited_before = clock.times().waited_seconds;
    });
    return RankSeconds{.work = timed.work_seconds() - work_before,
                       .waited = clock.times().waited_seconds - waited_before};
  });
}

MemoryCounts MachinePlanner::plan_memory(const RunPlan& plan) {
  return estimate_own_rank(plan, machine_).memory;
}

RecomputeChoice MachinePlanner::choose_recompute(const RunPlan& plan) {
  const ProbeRank probe = [&](const RunPlan& one, int rank) {
    ProbedRank probed = probe_rank(one, machine_, rank, /*record=*/true);
    return RecomputeProbe{probed.estimate.memory.peak_total_bytes, std::move(probed.calls)};
  };
  return piton::choose_recompute(plan, *plan.memory_limit, probe, [&](const KernelCall& call) {
    return seconds_of_call(call, machine_, /*cold=*/false);
  });
}

}  // namespace piton
