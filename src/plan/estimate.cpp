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
  if (plan.session.model.encoder) {
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

TrafficCounts difference(TrafficCounts a, const TrafficCounts& b) {
  a.all_reduce_bytes -= b.all_reduce_bytes;
  a.all_gather_bytes -= b.all_gather_bytes;
  a.reduce_scatter_bytes -= b.reduce_scatter_bytes;
  a.broadcast_bytes -= b.broadcast_bytes;
  a.all_to_all_bytes -= b.all_to_all_bytes;
  a.point_to_point_bytes -= b.point_to_point_bytes;
  a.collectives -= b.collectives;
  return a;
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

}  // namespace

RankEstimate estimate_rank(const Machine& machine, const RunPlan& plan,
                           const std::function<void()>& before_last) {
  Mesh mesh(machine.world, plan.mesh);
  Session session(machine, mesh, plan.session);
  session.publish_values();
  std::optional<Session> reference, teacher;
  if (plan.reference) reference.emplace(machine, mesh, *plan.reference);
  if (plan.teacher) {
    teacher.emplace(machine, mesh, *plan.teacher);
    session.set_teaching({.teacher = &*teacher});
  }
  std::vector<MicroBatch> batches;
  for (const std::int64_t samples : plan.sizes_of_micro_batches()) {
    batches.push_back(empty_batch(samples, plan));
  }
  // The first step is a warm-up. The second one also makes packed forms again.
  const auto step = [&](std::int64_t consumed) {
    if (reference) reference->token_losses(batches, {});
    session.train_step(batches, consumed, 0);
  };
  step(0);
  if (before_last) before_last();
  const TrafficCounts before = machine.world.traffic();
  step(plan.global_batch);
  RankEstimate estimate{.memory = machine.arena.counts(),
                        .offloaded_bytes = session.offloaded_bytes(),
                        .traffic = difference(machine.world.traffic(), before),
                        .save_copy_bytes = save_copy_bytes(session, plan)};
  for (const Parameter* parameter : session.parameters())
    estimate.parameters += parameter->elements();
  return estimate;
}

}  // namespace piton
