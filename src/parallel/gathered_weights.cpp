#include "parallel/gathered_weights.h"

#include <algorithm>

#include "base/error.h"

namespace piton {

GatheredWeights::GatheredWeights(std::vector<const FlatLayout*> layouts,
                                 std::vector<const ShardValues*> values, Communicator& data,
                                 Kernels& kernels, Arena& arena)
    : data_(data), kernels_(kernels), arena_(arena) {
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    for (const FlatEntry& entry : layouts[i]->entries) {
      places_[entry.parameter] = {layouts[i], values[i], entry};
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

Tensor GatheredWeights::start_gather(Parameter& parameter, Event& ready, Stream& stream) {
  const Place& place = places_.at(&parameter);
  Tensor rows = arena_.allocate(parameter.dtype, {place.entry.size}, MemoryKind::kCommunication);
  const Tensor own = place.values->own(parameter);
  if (own.defined()) {
    const std::int64_t offset = place.values->own_offset(parameter);
    kernels_.run(Copy{.dst = rows.slice(0, offset, own.elements()), .src = own}, stream);
  }
  ready = data_.all_gather_parts(
      rows, cuts_within(*place.layout, place.entry.begin, place.entry.size), stream);
  arena_.hold(rows, ready.fence());
  return rows.reshape(parameter.shape);
}

Tensor GatheredWeights::gather_now(Parameter& parameter, Stream& stream) {
  Event ready;
  Tensor rows = start_gather(parameter, ready, stream);
  stream.wait(ready);
  return rows;
}

GatheredWeights::Gathered& GatheredWeights::gathered(Parameter& parameter, Stream& stream) {
  const auto found = gathered_.find(&parameter);
  if (found != gathered_.end()) return found->second;
  Gathered& one = gathered_[&parameter];
  one.rows = start_gather(parameter, one.ready, stream);
  return one;
}

void GatheredWeights::follow_record(Parameter& parameter) {
  if (recording_ == Recording::kNow) record_.push_back(&parameter);
  if (recording_ != Recording::kDone) return;
  const auto from = record_.begin() + static_cast<std::ptrdiff_t>(next_);
  const auto found = std::find(from, record_.end(), &parameter);
  if (found != record_.end()) next_ = static_cast<std::size_t>(found - record_.begin()) + 1;
}

bool GatheredWeights::in_window(const Parameter& parameter) const {
  if (recording_ != Recording::kDone) return false;
  const std::size_t end = std::min(record_.size(), next_ + kPrefetchDepth);
  for (std::size_t i = next_; i < end; ++i) {
    if (record_[i] == &parameter) return true;
  }
  return false;
}

void GatheredWeights::prefetch(Stream& stream) {
  if (recording_ != Recording::kDone) return;
  const std::size_t end = std::min(record_.size(), next_ + kPrefetchDepth);
  for (std::size_t i = next_; i < end; ++i) gathered(*record_[i], stream);
  // What an unexpected use left behind, and nobody within the window wants.
  std::erase_if(gathered_,
                [&](const auto& one) { return one.second.leases == 0 && !in_window(*one.first); });
}

WeightView GatheredWeights::view(Parameter& parameter, Gathered& one, WeightForm form,
                                 Stream& stream) {
  WeightView view{.form = WeightForm::kRows,
                  .tensor = one.rows,
                  .out = parameter.shape[0],
                  .in = parameter.shape.ndim() > 1 ? parameter.shape[1] : 1,
                  .dtype = parameter.dtype};
  if (form == WeightForm::kRows) return view;
  const std::int64_t bytes = kernels_.packed_bytes(form, view.out, view.in, view.dtype);
  if (bytes == 0) return view;
  Tensor& packed = one.packed[form];
  if (!packed.defined()) {
    packed = arena_.allocate(DType::kU8, {bytes}, MemoryKind::kCommunication);
    kernels_.run(PackWeight{.packed = packed, .rows = one.rows, .form = form}, stream);
  }
  view.form = form;
  view.tensor = packed;
  return view;
}

WeightUse GatheredWeights::acquire(Parameter& parameter, WeightForm form, Stream& stream) {
  follow_record(parameter);
  Gathered& one = gathered(parameter, stream);
  ++one.leases;  // before prefetch() looks for what nobody uses
  prefetch(stream);
  if (!one.awaited) {
    stream.wait(one.ready);
    one.awaited = true;
  }
  std::shared_ptr<void> lease(static_cast<void*>(&one),
                              [this, &parameter, &stream](void*) { release(parameter, stream); });
  return {view(parameter, one, form, stream), std::move(lease)};
}

void GatheredWeights::release(Parameter& parameter, Stream& stream) {
  const auto found = gathered_.find(&parameter);
  PITON_ASSERT(found != gathered_.end() && found->second.leases > 0, "{}: released twice",
               parameter.name);
  Gathered& one = found->second;
  if (--one.leases > 0 || in_window(parameter)) return;
  const Event used = stream.record();
  arena_.hold(one.rows, used.fence());
  for (const auto& [form, packed] : one.packed) arena_.hold(packed, used.fence());
  gathered_.erase(found);
}

void GatheredWeights::invalidate() {
  for (const auto& [parameter, one] : gathered_) {
    PITON_ASSERT(one.leases == 0, "{}: in use while values change", parameter->name);
  }
  gathered_.clear();
}

}  // namespace piton
