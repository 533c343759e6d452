#include "plan/estimate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

namespace piton {
namespace {

// On the meta device only sizes matter, not contents.
MicroBatch empty_batch(std::int64_t samples, const RunPlan& plan) {
  const bool has_source = plan.decoder_sequence > 0;
  const std::int64_t sequence = has_source ? plan.decoder_sequence : plan.sequence;
  const std::int64_t rows = samples * sequence;
  MicroBatch batch{.samples = samples, .sequence = sequence};
  batch.tokens.assign(rows, 0);
  batch.labels.assign(rows, 0);
  batch.loss_mask.assign(rows, 1.0F);
  batch.positions.assign(rows, 0);
  if (const ModelConfig& model = plan.session.model; model.gives_labels()) {
    std::ranges::fill(batch.labels, kNoLabel);
    for (std::int64_t sample = 0; sample < samples; ++sample)
      batch.labels[static_cast<std::size_t>(sample * sequence)] = 0;
    if (model.several_labels)
      batch.label_sets.resize(static_cast<std::size_t>(samples * model.labels));
  } else if (plan.session.model.encoder) {
    // Those that are not masked have no label.
    const auto masked =
        static_cast<std::size_t>(std::ceil(plan.masked_share * static_cast<double>(sequence)) *
                                 static_cast<double>(samples));
    std::fill(batch.labels.begin() + static_cast<std::ptrdiff_t>(masked), batch.labels.end(),
              kNoLabel);
  }
  if (!has_source) return batch;
  batch.source.sequence = plan.sequence;
  batch.source.tokens.assign(samples * plan.sequence, 0);
  batch.source.lengths.assign(samples, static_cast<std::int32_t>(plan.sequence));
  return batch;
}

// a + times * b
TrafficCounts sum(TrafficCounts a, std::int64_t times, const TrafficCounts& b) {
  a.all_reduce_bytes += times * b.all_reduce_bytes;
  a.all_gather_bytes += times * b.all_gather_bytes;
  a.reduce_scatter_bytes += times * b.reduce_scatter_bytes;
  a.broadcast_bytes += times * b.broadcast_bytes;
  a.all_to_all_bytes += times * b.all_to_all_bytes;
  a.point_to_point_bytes += times * b.point_to_point_bytes;
  a.received_bytes += times * b.received_bytes;
  a.collectives += times * b.collectives;
  return a;
}

// Micro-batches after which a schedule of many repeats itself.
int round_of(const RunPlan& plan) {
  return std::max(plan.mesh[Axis::kPipeline], plan.session.schedule.group);
}

// How many micro-batches of a step are run. Of many, as many as fill the pipeline for several
// rounds, and end with the same part of a round; each further round adds the same.
int counted_micro_batches(const RunPlan& plan) {
  const bool keeps_all = plan.session.schedule.kind == ScheduleKind::kAllInAllOut;
  const int round = round_of(plan);
  const int few = std::max(32, 8 * round);
  if (keeps_all || plan.session.own_schedule || !plan.micro_batch_sizes.empty() ||
      plan.micro_batches <= 2 * few)
    return plan.micro_batches;
  return few + (plan.micro_batches - few) % round;
}

// Adds what `rounds` more than those of `least` need, by the difference between `least` and `most`,
// which has one more. Inputs of all micro-batches are in memory for the whole step.
void add_rounds(std::int64_t rounds, const RankEstimate& least, const RankEstimate& most,
                RankEstimate& estimate) {
  const auto add = [&](std::int64_t& to, std::int64_t at_least, std::int64_t at_most) {
    to += rounds * (at_most - at_least);
  };
  for (std::size_t kind = 0; kind < estimate.memory.peak_bytes.size(); ++kind)
    add(estimate.memory.peak_bytes[kind], least.memory.peak_bytes[kind],
        most.memory.peak_bytes[kind]);
  const std::int64_t before = estimate.memory.peak_total_bytes;
  add(estimate.memory.peak_total_bytes, least.memory.peak_total_bytes,
      most.memory.peak_total_bytes);
  estimate.memory.reserved_bytes += estimate.memory.peak_total_bytes - before;
  add(estimate.offloaded_bytes, least.offloaded_bytes, most.offloaded_bytes);
  estimate.traffic = sum(estimate.traffic, rounds, sum(most.traffic, -1, least.traffic));
}

// Weights, main copies and moments of the whole model, over the ranks that write them.
std::int64_t save_copy_bytes(Session& session, const RunPlan& plan) {
  double bytes = 0, elements = 0;  // of this rank's state: the same per element everywhere
  for (const OptimizerState& state : session.optimizer().state()) {
    if (!plan.saves_optimizer) break;
    elements += static_cast<double>(state.size());
    if (!state.main_is_value) bytes += static_cast<double>(state.main.bytes());
    for (const Moment& moment : state.moments) bytes += static_cast<double>(moment.values.bytes());
  }
  const ModelConfig& model = plan.session.model;
  const double per_element =
      static_cast<double>(size_bytes(model.dtype)) + (elements > 0 ? bytes / elements : 0);
  return static_cast<std::int64_t>(per_element * static_cast<double>(model.parameters())) /
         plan.mesh.ranks();
}

// The estimate of a plan with the first `count` micro-batches of its steps.
RankEstimate run_two_steps(const Machine& machine, const RunPlan& plan, int count,
                           const std::function<void()>& before_last) {
  Mesh mesh(machine.world, plan.mesh);
  SessionSettings settings = plan.session;
  settings.micro_batches = count;
  Session session(machine, mesh, settings);
  session.publish_values();
  std::optional<Session> reference, teacher, judge, critic;
  if (plan.reference) reference.emplace(machine, mesh, *plan.reference);
  if (plan.teacher) {
    teacher.emplace(machine, mesh, *plan.teacher);
    session.set_teaching({.teacher = &*teacher});
  }
  if (plan.judge) judge.emplace(machine, mesh, *plan.judge);
  if (plan.critic) {
    critic.emplace(machine, mesh, *plan.critic);
    critic->publish_values();
  }
  std::vector<MicroBatch> batches;
  for (int i = 0; i < count; ++i) {
    const std::int64_t samples = plan.micro_batch_sizes.empty()
                                     ? plan.micro_batch
                                     : plan.micro_batch_sizes[static_cast<std::size_t>(i)];
    batches.push_back(empty_batch(samples, plan));
  }
  // The first step is a warm-up. The second one also makes packed forms again.
  const auto step = [&](std::int64_t consumed) {
    if (judge) judge->token_losses(batches, {});
    if (reference) reference->token_losses(batches, {});
    session.train_step(batches, consumed, 0);
    if (critic) critic->train_step(batches, consumed, 0);
  };
  step(0);
  if (before_last) before_last();
  const TrafficCounts before = machine.world.traffic();
  step(plan.global_batch);
  RankEstimate estimate{.memory = machine.arena.counts(),
                        .offloaded_bytes = session.offloaded_bytes(),
                        .traffic = sum(machine.world.traffic(), -1, before),
                        .save_copy_bytes = save_copy_bytes(session, plan)};
  for (const Parameter* parameter : session.parameters())
    estimate.parameters += parameter->elements();
  return estimate;
}

}  // namespace

std::int64_t sent_bytes(const TrafficCounts& sent) {
  return sent.all_reduce_bytes + sent.all_gather_bytes + sent.reduce_scatter_bytes +
         sent.broadcast_bytes + sent.all_to_all_bytes + sent.point_to_point_bytes;
}

RankEstimate estimate_rank(const Machine& machine, const RunPlan& plan,
                           const std::function<void()>& before_last) {
  const int counted = counted_micro_batches(plan);
  RankEstimate estimate = run_two_steps(machine, plan, counted, before_last);
  if (counted == plan.micro_batches) return estimate;
  const RankEstimate least = estimate;
  const int round = round_of(plan);
  // In another session: ZeRO-3 fetches weights ahead by the order of the first step.
  const RankEstimate most = run_two_steps(machine, plan, counted + round, {});
  add_rounds((plan.micro_batches - counted) / round, least, most, estimate);
  return estimate;
}

}  // namespace piton
