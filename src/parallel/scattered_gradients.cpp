#include "parallel/scattered_gradients.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "parallel/bucketed_gradients.h"
#include "parallel/unit_values.h"

namespace piton {

ScatteredGradients::ScatteredGradients(const std::vector<ShardUnit>& units,
                                       const ReductionGroups& groups, const ComputeContext& compute)
    : units_(units),
      groups_(groups),
      kernels_(&compute.kernels),
      device_(&compute.device),
      arena_(&compute.arena),
      parts_(allocate_units(units,
                            {.dtype = gradient_dtype,
                             .elements = [](const ShardUnit& unit) { return unit.part_size(); },
                             .kind = MemoryKind::kGradients},
                            compute.device, compute.arena, compute.stream)),
      collecting_(units.size()) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (std::size_t i = 0; i < units[u].entries.size(); ++i) {
      Parameter& parameter = *units[u].entries[i].parameter;
      places_[&parameter] = {u, i};
      parameter.gradient = {};
    }
  }
}

Tensor ScatteredGradients::own_part(std::size_t unit, const Tensor& whole) const {
  return whole.slice(0, units_[unit].own_begin(), units_[unit].part_size());
}

Tensor ScatteredGradients::part(const ShardSpan& span) const {
  return parts_[span.unit].slice(0, span.unit_begin - units_[span.unit].own_begin(), span.size);
}

void ScatteredGradients::begin_step(Stream& stream) {
  PITON_ASSERT(queue_.empty(), "{} gradients of the step before are under way", queue_.size());
  for (Collecting& one : collecting_) one = {};
  for (const Tensor& part : parts_) device_->zero(part, stream);
}

Tensor ScatteredGradients::gradient(Parameter& parameter, Stream& stream) {
  const Place place = places_.at(&parameter);
  const ShardUnit& unit = units_[place.unit];
  Collecting& one = collecting_[place.unit];
  if (!one.whole.defined()) {
    drain(kMaxOnTheWay - 1, stream);
    one.whole = arena_->allocate(gradient_dtype(unit), {unit.size}, MemoryKind::kGradients, stream);
    device_->zero(one.whole, stream);
    for (const UnitEntry& entry : unit.entries) {
      one.missing.push_back(std::max(entry.parameter->contributions, 1));
    }
    one.incomplete = static_cast<int>(unit.entries.size());
  }
  const UnitEntry& entry = unit.entries[place.entry];
  return one.whole.slice(0, entry.begin, entry.size).reshape(parameter.shape);
}

void ScatteredGradients::contribute(Parameter& parameter, Stream& stream) {
  const Place place = places_.at(&parameter);
  Collecting& one = collecting_[place.unit];
  PITON_ASSERT(one.whole.defined(), "{}: a contribution without a gradient", parameter.name);
  if (--one.missing[place.entry] == 0 && --one.incomplete == 0) submit(place.unit, stream);
}

void ScatteredGradients::submit(std::size_t unit, Stream& stream) {
  OnTheWay next{.unit = unit, .whole = std::exchange(collecting_[unit], {}).whole};
  After sums(stream);
  for (const UnitEntry& entry : units_[unit].entries) {
    if (!groups_.sums_over_tensor(*entry.parameter)) continue;
    const Tensor gradient = next.whole.slice(0, entry.begin, entry.size);
    sums.events.push_back(groups_.tensor->all_reduce(gradient, Reduction::kSum, stream));
    arena_->hold(next.whole, sums.events.back().fence());
  }
  next.scattered =
      units_[unit].group->gradients->reduce_scatter(own_part(unit, next.whole), next.whole, sums);
  if (Communicator* const replicas = units_[unit].group->replicas) {
    next.scattered = replicas->all_reduce(own_part(unit, next.whole), Reduction::kSum,
                                          After(stream, {next.scattered}));
  }
  arena_->hold(next.whole, next.scattered.fence());
  queued_bytes_ += next.whole.bytes();
  queue_.push_back(std::move(next));
  drain(kMaxOnTheWay, stream);
}

void ScatteredGradients::drain(std::size_t most, Stream& stream) {
  while (queue_.size() > most || (queue_.size() > 1 && queued_bytes_ > kMaxOnTheWayBytes)) {
    const OnTheWay& oldest = queue_.front();
    stream.wait(oldest.scattered);
    const Tensor& sum = parts_[oldest.unit];
    kernels_->run(Add{.y = sum, .a = sum, .b = own_part(oldest.unit, oldest.whole)}, stream);
    queued_bytes_ -= oldest.whole.bytes();
    queue_.pop_front();
  }
}

void ScatteredGradients::finish(Stream& stream) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (collecting_[unit].whole.defined()) submit(unit, stream);
  }
  drain(0, stream);
  std::vector<Event> sums;
  for (const auto& [parameter, stages] : groups_.tied) {
    const Tensor& own = parts_[places_.at(parameter).unit];  // the same part on all its stages
    sums.push_back(stages->all_reduce(own, Reduction::kSum, stream));
    arena_->hold(own, sums.back().fence());
  }
  for (const Event& event : sums) stream.wait(event);
}

}  // namespace piton
