#include "parallel/gathered_weights.h"

#include <algorithm>

#include "base/error.h"

namespace piton {

GatheredWeights::GatheredWeights(const std::vector<Source>& sources, Kernels& kernels, Arena& arena)
    : arena_(arena), forms_(kernels, arena, FrozenForms::kFewest, MemoryKind::kCommunication) {
  for (const Source& source : sources) {
    for (std::size_t u = 0; u < source.units->size(); ++u) {
      const ShardUnit& unit = (*source.units)[u];
      for (const UnitEntry& entry : unit.entries) {
        places_[entry.parameter] = {&unit, &source.values->own(u), entry};
      }
    }
  }
}

void GatheredWeights::begin_step() {
  if (recording_ == Recording::kNotYet) recording_ = Recording::kNow;
  next_ = 0;
}

void GatheredWeights::end_step() {
  if (recording_ == Recording::kNow) recording_ = Recording::kDone;
  next_ = record_.size();
}

Tensor GatheredWeights::start_gather(const Place& place, Event& ready, Stream& stream) {
  Tensor values =
      arena_.allocate(place.unit->dtype, {place.unit->size}, MemoryKind::kCommunication, stream);
  ready = place.unit->group->values->all_gather(values, *place.own, stream);
  arena_.hold(values, ready.fence());
  arena_.hold(*place.own, ready.fence());
  return values;
}

Tensor GatheredWeights::rows(const Place& place, const Tensor& values) {
  return values.slice(0, place.entry.begin, place.entry.size).reshape(place.entry.parameter->shape);
}

Tensor GatheredWeights::gather_now(Parameter& parameter, Stream& stream) {
  const Place& place = places_.at(&parameter);
  Event ready;
  const Tensor values = start_gather(place, ready, stream);
  stream.wait(ready);
  return rows(place, values);
}

GatheredWeights::Gathered& GatheredWeights::gathered(const Place& place, Stream& stream) {
  const auto found = gathered_.find(place.unit);
  if (found != gathered_.end()) return found->second;
  Gathered& one = gathered_[place.unit];
  one.values = start_gather(place, one.ready, stream);
  one.user = &stream;
  return one;
}

void GatheredWeights::follow_record(const Place& place) {
  if (recording_ == Recording::kNow) record_.push_back(&place);
  if (recording_ != Recording::kDone) return;
  const auto from = record_.begin() + static_cast<std::ptrdiff_t>(next_);
  const auto found = std::find(from, record_.end(), &place);
  if (found != record_.end()) next_ = static_cast<std::size_t>(found - record_.begin()) + 1;
}

bool GatheredWeights::in_window(const ShardUnit* unit) const {
  if (recording_ != Recording::kDone) return false;
  const std::size_t end = std::min(record_.size(), next_ + kPrefetchDepth);
  for (std::size_t i = next_; i < end; ++i) {
    if (record_[i]->unit == unit) return true;
  }
  return false;
}

void GatheredWeights::prefetch(Stream& stream) {
  if (recording_ != Recording::kDone) return;
  const std::size_t end = std::min(record_.size(), next_ + kPrefetchDepth);
  for (std::size_t i = next_; i < end; ++i) gathered(*record_[i], stream);
  // Free what a use outside the record has gathered and no use in the window needs.
  for (auto one = gathered_.begin(); one != gathered_.end();) {
    const auto next = std::next(one);
    if (one->second.leases == 0 && !in_window(one->first)) drop(one, stream);
    one = next;
  }
}

WeightUse GatheredWeights::acquire(Parameter& parameter, WeightForm form, Stream& stream) {
  if (parameter.codes.given()) return {forms_.get(parameter, {}, form, stream), nullptr};
  const Place& place = places_.at(&parameter);
  follow_record(place);
  Gathered& one = gathered(place, stream);
  ++one.leases;  // before prefetch(), which frees values without leases
  prefetch(stream);
  stream.wait(one.ready);
  std::shared_ptr<void> lease(static_cast<void*>(&one),
                              [this, unit = place.unit, &stream](void*) { release(unit, stream); });
  return {forms_.get(parameter, rows(place, one.values), form, stream), std::move(lease)};
}

void GatheredWeights::release(const ShardUnit* unit, Stream& stream) {
  const auto found = gathered_.find(unit);
  PITON_ASSERT(found != gathered_.end() && found->second.leases > 0,
               "a unit of {} parameters is released twice", unit->entries.size());
  if (--found->second.leases > 0 || in_window(unit)) return;
  drop(found, stream);
}

void GatheredWeights::drop(std::map<const ShardUnit*, Gathered>::iterator one, Stream& stream) {
  const Event used = one->second.user == &stream ? Event() : stream.record();
  arena_.hold(one->second.values, used.fence());
  for (const UnitEntry& entry : one->first->entries) forms_.drop(*entry.parameter, used);
  gathered_.erase(one);
}

void GatheredWeights::invalidate() {
  for (const auto& [unit, one] : gathered_) {
    PITON_ASSERT(one.leases == 0, "{}: in use while values change",
                 unit->entries.front().parameter->name);
    for (const UnitEntry& entry : unit->entries) forms_.drop(*entry.parameter, {});
  }
  gathered_.clear();
}

}  // namespace piton
