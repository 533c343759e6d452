#include "plan/step_time.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/measured/timed_kernels.h"
#include "parallel/simulate.h"

namespace piton {
namespace {

// Seconds of a stage: once a step, and for each sample of a micro-batch.
struct StageSeconds {
  RankSeconds once;
  RankSeconds of_sample;

  double total(double samples) const {
    return once.work + once.waited + samples * (of_sample.work + of_sample.waited);
  }
};

RunPlan with_micro_batches(const RunPlan& plan, int count) {
  RunPlan other = plan;
  other.micro_batches = other.session.micro_batches = count;
  return other;
}

// Work of a micro-batch and of the optimizer: from the difference between two steps, because times
// grow by the micro-batch.
StageSeconds timed_stage(const RunPlan& plan, int rank, const TimeRank& time_rank) {
  if (!plan.micro_batch_sizes.empty()) {
    const RankSeconds all = time_rank(plan, rank);
    const auto samples = static_cast<double>(std::accumulate(
        plan.micro_batch_sizes.begin(), plan.micro_batch_sizes.end(), std::int64_t{0}));
    return {.of_sample = {all.work / samples, all.waited / samples}};
  }
  const int round = std::max({plan.mesh[Axis::kPipeline], plan.session.schedule.group, 2});
  const int few = std::min(plan.micro_batches, round);
  const RankSeconds one = time_rank(with_micro_batches(plan, few), rank);
  const RankSeconds two = time_rank(with_micro_batches(plan, 2 * few), rank);
  const double samples = static_cast<double>(few) * static_cast<double>(plan.micro_batch);
  const auto once = [](double at_one, double at_two) { return std::max(2 * at_one - at_two, 0.0); };
  const auto each = [&](double at_one, double at_two) {
    return std::max(at_two - at_one, 0.0) / samples;
  };
  return {.once = {once(one.work, two.work), once(one.waited, two.waited)},
          .of_sample = {each(one.work, two.work), each(one.waited, two.waited)}};
}

// Times of chunks for one sample: those of their stages, divided by layers. A third each for the
// forward pass and the two parts of the backward pass.
std::vector<StepTimes> chunk_times(const RunPlan& plan, const Schedule& schedule,
                                   const std::vector<StageSeconds>& stages) {
  std::vector<std::int64_t> layers = plan.session.layout.layers_of_chunks;
  if (layers.empty()) layers.assign(static_cast<std::size_t>(schedule.chunks()), 1);
  std::vector<double> of_stage(stages.size());
  for (std::size_t c = 0; c < layers.size(); ++c) {
    of_stage[static_cast<std::size_t>(schedule.stage_of_chunk[c])] +=
        static_cast<double>(layers[c]);
  }
  std::vector<StepTimes> times;
  for (std::size_t c = 0; c < layers.size(); ++c) {
    const auto stage = static_cast<std::size_t>(schedule.stage_of_chunk[c]);
    const RankSeconds& sample = stages[stage].of_sample;
    const double share = of_stage[stage] > 0 ? static_cast<double>(layers[c]) / of_stage[stage] : 0;
    const double third = share * (sample.work + sample.waited) / 3;
    times.push_back({.forward = third, .backward_input = third, .backward_weight = third});
  }
  return times;
}

}  // namespace

double seconds_at(const DeviceRates& rates, const KernelCall& call) {
  return std::max(flops(call) / rates.flops_per_second,
                  static_cast<double>(bytes_moved(call)) / rates.bytes_per_second);
}

void TimedCalls::submit(const KernelCall& call, Stream& stream) {
  inner_.run(call, stream);
  const std::string what = describe(call);
  auto known = known_.find(what);
  if (known == known_.end()) known = known_.emplace(what, seconds_(call)).first;
  work_seconds_ += known->second;
  advance_(known->second);
}

StepTime estimate_step_time(const RunPlan& plan, const TimeRank& time_rank) {
  const int count = plan.mesh[Axis::kPipeline];
  std::vector<StageSeconds> stages;
  for (int stage = 0; stage < count; ++stage) {
    stages.push_back(timed_stage(plan, plan.mesh.ranks() / count * stage, time_rank));
  }
  const std::vector<std::int64_t> sizes = plan.sizes_of_micro_batches();
  const auto samples =
      static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  const StageSeconds& busiest = *std::ranges::max_element(
      stages, {}, [&](const StageSeconds& stage) { return stage.total(samples); });
  StepTime time{.work = busiest.once.work + samples * busiest.of_sample.work,
                .waited = busiest.once.waited + samples * busiest.of_sample.waited};
  time.seconds = busiest.total(samples);
  if (count > 1) {
    const Schedule schedule = make_schedule(plan.session.schedule, count, plan.micro_batches);
    const double passes = simulate(schedule, chunk_times(plan, schedule, stages), sizes).time;
    time.seconds = std::max(time.seconds, passes + busiest.once.work + busiest.once.waited);
    time.idle = time.seconds - time.work - time.waited;
  }
  return time;
}

}  // namespace piton
