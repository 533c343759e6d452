#include "parallel/scattered_gradients.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "parallel/bucketed_gradients.h"

namespace piton {

ScatteredGradients::ScatteredGradients(const FlatLayout& layout, const ReductionGroups& groups,
                                       Kernels& kernels, Device& device, Arena& arena,
                                       Stream& stream)
    : layout_(layout),
      groups_(groups),
      kernels_(&kernels),
      device_(&device),
      arena_(&arena),
      dtype_(gradient_dtype(layout)),
      collecting_(layout.entries.size()) {
  const int rank = groups.data->rank();
  shard_ = arena.allocate(dtype_, {layout.shards[rank + 1] - layout.shards[rank]},
                          MemoryKind::kGradients);
  device.zero_new(shard_, stream);
  for (std::size_t i = 0; i < layout.entries.size(); ++i) {
    entry_of_[layout.entries[i].parameter] = i;
    layout.entries[i].parameter->gradient = {};
  }
}

std::int64_t ScatteredGradients::own_begin(std::size_t entry) const {
  const FlatEntry& one = layout_.entries[entry];
  return cuts_within(layout_, one.begin, one.size)[groups_.data->rank()];
}

std::int64_t ScatteredGradients::own_size(std::size_t entry) const {
  const FlatEntry& one = layout_.entries[entry];
  const std::vector<std::int64_t> cuts = cuts_within(layout_, one.begin, one.size);
  return cuts[groups_.data->rank() + 1] - cuts[groups_.data->rank()];
}

Tensor ScatteredGradients::part(const FlatSpan& span) const {
  return shard_.slice(0, span.flat_begin - layout_.shards[groups_.data->rank()], span.size);
}

void ScatteredGradients::begin_step(Stream& stream) {
  PITON_ASSERT(queue_.empty(), "{} gradients of the step before are on their way", queue_.size());
  for (Collecting& one : collecting_) one = {};
  device_->zero(shard_, stream);
}

Tensor ScatteredGradients::gradient(Parameter& parameter, Stream& stream) {
  Collecting& one = collecting_[entry_of_.at(&parameter)];
  if (!one.whole.defined()) {
    advance(kMaxOnTheWay - 1, stream);
    one.whole = arena_->allocate(dtype_, {parameter.elements()}, MemoryKind::kGradients);
    device_->zero(one.whole, stream);
  }
  return one.whole.reshape(parameter.shape);
}

void ScatteredGradients::contribute(Parameter& parameter, Stream& stream) {
  const std::size_t entry = entry_of_.at(&parameter);
  Collecting& one = collecting_[entry];
  PITON_ASSERT(one.whole.defined(), "{}: a contribution without a gradient", parameter.name);
  if (++one.contributions >= parameter.contributions) submit(entry, stream);
}

void ScatteredGradients::submit(std::size_t entry, Stream& stream) {
  Collecting one = std::exchange(collecting_[entry], {});
  OnTheWay next{.entry = entry, .whole = std::move(one.whole)};
  next.over_tensor = groups_.sums_over_tensor(*layout_.entries[entry].parameter);
  if (next.over_tensor) {
    next.tensor_sum = groups_.tensor->all_reduce(next.whole, Reduction::kSum, stream);
    arena_->hold(next.whole, next.tensor_sum.fence());
  }
  queue_.push_back(std::move(next));
  advance(kMaxOnTheWay, stream);
}

void ScatteredGradients::scatter(OnTheWay& one, Stream& stream) {
  const FlatEntry& entry = layout_.entries[one.entry];
  stream.wait(one.tensor_sum);
  one.scattered = groups_.data->reduce_scatter_parts(
      one.whole, cuts_within(layout_, entry.begin, entry.size), stream);
  arena_->hold(one.whole, one.scattered.fence());
  one.scattering = true;
}

void ScatteredGradients::add(const OnTheWay& one, Stream& stream) {
  stream.wait(one.scattered);
  const std::int64_t begin = own_begin(one.entry);
  const std::int64_t size = own_size(one.entry);
  if (size == 0) return;
  const FlatEntry& entry = layout_.entries[one.entry];
  Tensor own = shard_.slice(0, entry.begin + begin - layout_.shards[groups_.data->rank()], size);
  kernels_->run(Add{.y = own, .a = own, .b = one.whole.slice(0, begin, size)}, stream);
}

void ScatteredGradients::advance(std::size_t most, Stream& stream) {
  while (!queue_.empty()) {
    // Which collective of a group comes next must not depend on what happens to be complete, nor on
    // the queue's length, which does: ranks would differ. So what was summed over tensor ranks is
    // scattered when the next one is submitted, or at the end, and everything else at once.
    for (OnTheWay& one : queue_) {
      if (one.scattering) continue;
      const bool newest = &one == &queue_.back();
      if (newest && one.over_tensor && most > 0) break;
      scatter(one, stream);
    }
    OnTheWay& oldest = queue_.front();
    if (queue_.size() <= most && !(oldest.scattering && oldest.scattered.complete())) break;
    add(oldest, stream);
    queue_.pop_front();
  }
}

void ScatteredGradients::finish(Stream& stream) {
  for (std::size_t i = layout_.entries.size(); i-- > 0;) {
    if (collecting_[i].whole.defined()) submit(i, stream);
  }
  advance(0, stream);
  for (const auto& [parameter, stages] : groups_.tied) sum_tied(*parameter, *stages, stream);
}

void ScatteredGradients::sum_tied(Parameter& parameter, Communicator& stages, Stream& stream) {
  // The other stage's shards are cut elsewhere, so the stages meet over the whole parameter.
  const std::size_t index = entry_of_.at(&parameter);
  const FlatEntry& entry = layout_.entries[index];
  const std::int64_t begin = own_begin(index);
  const std::int64_t size = own_size(index);
  Tensor whole = arena_->allocate(dtype_, {entry.size}, MemoryKind::kGradients);
  FlatSpan span{&parameter, begin, entry.begin + begin, size};
  if (size > 0) kernels_->run(Copy{.dst = whole.slice(0, begin, size), .src = part(span)}, stream);
  const Event gathered =
      groups_.data->all_gather_parts(whole, cuts_within(layout_, entry.begin, entry.size), stream);
  arena_->hold(whole, gathered.fence());
  stream.wait(gathered);
  const Event summed = stages.all_reduce(whole, Reduction::kSum, stream);
  arena_->hold(whole, summed.fence());
  stream.wait(summed);
  if (size > 0) kernels_->run(Copy{.dst = part(span), .src = whole.slice(0, begin, size)}, stream);
}

}  // namespace piton
