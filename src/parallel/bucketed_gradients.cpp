#include "parallel/bucketed_gradients.h"

#include <algorithm>

#include "base/error.h"
#include "parallel/unit_values.h"

namespace piton {
namespace {

// By place in the unit.
std::vector<const UnitEntry*> entries_in_order(const ShardUnit& unit) {
  std::vector<const UnitEntry*> entries;
  for (const UnitEntry& entry : unit.entries) entries.push_back(&entry);
  std::ranges::sort(entries, {}, &UnitEntry::begin);
  return entries;
}

}  // namespace

DType gradient_dtype(const ShardUnit& unit) {
  return unit.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

BucketedGradients::BucketedGradients(const std::vector<ShardUnit>& units,
                                     const ReductionGroups& groups, Device& device, Arena& arena,
                                     Stream& stream)
    : units_(units),
      groups_(groups),
      device_(&device),
      arena_(&arena),
      gradients_(allocate_units(units,
                                {.dtype = gradient_dtype,
                                 .elements = [](const ShardUnit& unit) { return unit.size; },
                                 .kind = MemoryKind::kGradients},
                                device, arena, stream)),
      progress_(units.size()) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (std::size_t i = 0; i < units[u].entries.size(); ++i) {
      const UnitEntry& entry = units[u].entries[i];
      places_[entry.parameter] = {u, i};
      entry.parameter->gradient =
          gradients_[u].slice(0, entry.begin, entry.size).reshape(entry.parameter->shape);
    }
    progress_[u].missing.resize(units[u].entries.size());
    progress_[u].zeroed.resize(units[u].entries.size());
  }
}

void BucketedGradients::begin_step(int micro_batches, Stream& stream) {
  next_ = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    zero_padding(u, stream);
    Progress& progress = progress_[u];
    progress.zeroed.assign(progress.zeroed.size(), false);
    progress.reduced = {};
    // A unit with a parameter of unknown number of contributions (0) never becomes complete.
    // finish() reduces it.
    progress.incomplete = static_cast<int>(units_[u].entries.size());
    for (std::size_t i = 0; i < progress.missing.size(); ++i) {
      progress.missing[i] =
          static_cast<std::int64_t>(units_[u].entries[i].parameter->contributions) * micro_batches;
    }
  }
}

Tensor BucketedGradients::gradient(Parameter& parameter, Stream& stream) {
  const Place place = places_.at(&parameter);
  zero_entry(place.unit, place.entry, stream);
  return parameter.gradient;
}

GradientBuffer BucketedGradients::buffer(Parameter& parameter) {
  const Place place = places_.at(&parameter);
  std::vector<bool>& zeroed = progress_[place.unit].zeroed;
  const bool first = !zeroed[place.entry];
  zeroed[place.entry] = true;
  return {parameter.gradient, first};
}

void BucketedGradients::zero_entry(std::size_t unit, std::size_t entry, Stream& stream) {
  Progress& progress = progress_[unit];
  if (progress.zeroed[entry]) return;
  progress.zeroed[entry] = true;
  const UnitEntry& one = units_[unit].entries[entry];
  device_->zero(gradients_[unit].slice(0, one.begin, one.size), stream);
}

// A reduction may have left something there.
void BucketedGradients::zero_padding(std::size_t unit, Stream& stream) {
  std::int64_t end = 0;
  const auto zero_up_to = [&](std::int64_t begin) {
    if (begin > end) device_->zero(gradients_[unit].slice(0, end, begin - end), stream);
  };
  for (const UnitEntry* entry : entries_in_order(units_[unit])) {
    zero_up_to(entry->begin);
    end = entry->begin + entry->size;
  }
  zero_up_to(units_[unit].size);
}

void BucketedGradients::contribute(Parameter& parameter, Stream& stream) {
  if (parameter.contributions == 0) return;
  const Place place = places_.at(&parameter);
  Progress& progress = progress_[place.unit];
  PITON_ASSERT(progress.zeroed[place.entry], "{}: a contribution without a gradient",
               parameter.name);
  PITON_ASSERT(progress.missing[place.entry] > 0,
               "{}: more contributions than begin_step() was told", parameter.name);
  if (--progress.missing[place.entry] > 0) return;
  if (--progress.incomplete == 0) advance(/*finishing=*/false, stream);
}

std::vector<Event> BucketedGradients::sum_over_tensor(std::size_t unit, Stream& stream) {
  std::vector<Event> sums;
  for (const UnitEntry& entry : units_[unit].entries) {
    if (!groups_.sums_over_tensor(*entry.parameter)) continue;
    const Tensor gradient = gradients_[unit].slice(0, entry.begin, entry.size);
    sums.push_back(groups_.tensor->all_reduce(gradient, Reduction::kSum, stream));
    arena_->hold(gradient, sums.back().fence());
  }
  return sums;
}

Tensor BucketedGradients::own_part(std::size_t unit) const {
  return gradients_[unit].slice(0, units_[unit].own_begin(), units_[unit].part_size());
}

void BucketedGradients::advance(bool finishing, Stream& stream) {
  for (; next_ < units_.size(); ++next_) {
    Progress& progress = progress_[next_];
    if (!finishing && progress.incomplete > 0) return;
    const After sums(stream, sum_over_tensor(next_, stream));
    Communicator& group = *units_[next_].group->gradients;
    progress.reduced = units_[next_].parts > 1
                           ? group.reduce_scatter(own_part(next_), gradients_[next_], sums)
                           : group.all_reduce(gradients_[next_], Reduction::kSum, sums);
    if (Communicator* const replicas = units_[next_].group->replicas) {
      progress.reduced =
          replicas->all_reduce(own_part(next_), Reduction::kSum, After(stream, {progress.reduced}));
    }
    arena_->hold(gradients_[next_], progress.reduced.fence());
  }
}

void BucketedGradients::finish(Stream& stream) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (std::size_t i = 0; i < units_[u].entries.size(); ++i) zero_entry(u, i, stream);
  }
  advance(/*finishing=*/true, stream);
  for (const Progress& progress : progress_) stream.wait(progress.reduced);
  std::vector<Event> sums;
  for (const auto& [parameter, stages] : groups_.tied) {
    const Tensor own = own_part(places_.at(parameter).unit);  // the same part on all its stages
    sums.push_back(stages->all_reduce(own, Reduction::kSum, stream));
    arena_->hold(own, sums.back().fence());
  }
  for (const Event& event : sums) stream.wait(event);
}

}  // namespace piton
