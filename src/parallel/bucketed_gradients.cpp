#include "parallel/bucketed_gradients.h"

#include <algorithm>

#include "base/error.h"

namespace piton {

DType gradient_dtype(const FlatLayout& layout) {
  const auto is_double = [](const FlatEntry& entry) {
    return entry.parameter->dtype == DType::kF64;
  };
  const auto doubles = std::ranges::count_if(layout.entries, is_double);
  PITON_ASSERT(doubles == 0 || doubles == static_cast<std::ptrdiff_t>(layout.entries.size()),
               "{} of {} parameters are fp64", doubles, layout.entries.size());
  return doubles > 0 ? DType::kF64 : DType::kF32;
}

BucketedGradients::BucketedGradients(const FlatLayout& layout, const ReductionGroups& groups,
                                     bool scatter, Device& device, Arena& arena, Stream& stream,
                                     std::int64_t bucket_bytes)
    : layout_(layout), groups_(groups), scatter_(scatter), device_(&device), arena_(&arena) {
  flat_ = arena.allocate(gradient_dtype(layout), {layout.size}, MemoryKind::kGradients);
  device.zero_new(flat_, stream);
  for (std::size_t i = 0; i < layout.entries.size(); ++i) {
    Parameter& parameter = *layout.entries[i].parameter;
    entry_of_[&parameter] = i;
    parameter.gradient = gradient_of(i).reshape(parameter.shape);
  }
  make_buckets(bucket_bytes);
}

Tensor BucketedGradients::gradient_of(std::size_t entry) const {
  return flat_.slice(0, layout_.entries[entry].begin, layout_.entries[entry].size);
}

void BucketedGradients::make_buckets(std::int64_t bucket_bytes) {
  bucket_of_.resize(layout_.entries.size());
  missing_.assign(layout_.entries.size(), 0);
  std::int64_t end = layout_.size;
  for (std::size_t i = layout_.entries.size(); i-- > 0;) {
    const FlatEntry& entry = layout_.entries[i];
    const bool tied = groups_.is_tied(*entry.parameter);
    const bool full =
        !buckets_.empty() && buckets_.back().size * size_bytes(flat_.dtype()) >= bucket_bytes;
    if (buckets_.empty() || full || tied || buckets_.back().tied) {
      buckets_.emplace_back();
      buckets_.back().tied = tied;
    }
    Bucket& bucket = buckets_.back();
    bucket.begin = entry.begin;
    bucket.size += end - entry.begin;
    bucket.entries.push_back(i);
    bucket_of_[i] = buckets_.size() - 1;
    end = entry.begin;
  }
}

void BucketedGradients::begin_step(int micro_batches, Stream& stream) {
  device_->zero(flat_, stream);
  next_tensor_ = 0;
  next_data_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.incomplete = 0;
    bucket.tensor_sums.clear();
    bucket.reduced = {};
    for (const std::size_t entry : bucket.entries) {
      missing_[entry] = static_cast<std::int64_t>(layout_.entries[entry].parameter->contributions) *
                        micro_batches;
      // A parameter that does not say what it expects is reduced at the end.
      bucket.incomplete += 1;
    }
  }
}

void BucketedGradients::contribute(Parameter& parameter, Stream& stream) {
  const std::size_t entry = entry_of_.at(&parameter);
  if (parameter.contributions == 0) return;
  PITON_ASSERT(missing_[entry] > 0, "{}: more contributions than begin_step() was told",
               parameter.name);
  if (--missing_[entry] > 0) return;
  if (--buckets_[bucket_of_[entry]].incomplete == 0) advance(/*finishing=*/false, stream);
}

void BucketedGradients::advance(bool finishing, Stream& stream) {
  for (; next_tensor_ < buckets_.size(); ++next_tensor_) {
    Bucket& bucket = buckets_[next_tensor_];
    if (!finishing && bucket.incomplete > 0) break;
    for (const std::size_t entry : bucket.entries) {
      if (!groups_.sums_over_tensor(*layout_.entries[entry].parameter)) continue;
      bucket.tensor_sums.push_back(
          groups_.tensor->all_reduce(gradient_of(entry), Reduction::kSum, stream));
    }
  }
  for (; next_data_ < next_tensor_; ++next_data_) {
    Bucket& bucket = buckets_[next_data_];
    const bool summed = std::ranges::all_of(bucket.tensor_sums, &Event::complete);
    if (!finishing && !summed) break;
    for (const Event& event : bucket.tensor_sums) stream.wait(event);
    Tensor data = flat_.slice(0, bucket.begin, bucket.size);
    if (scatter_ && !bucket.tied) {
      const std::vector<std::int64_t> cuts = cuts_within(layout_, bucket.begin, bucket.size);
      bucket.reduced = groups_.data->reduce_scatter_parts(data, cuts, stream);
    } else {
      // A tied parameter is needed whole: the shards of the other stage are cut elsewhere.
      bucket.reduced = groups_.data->all_reduce(data, Reduction::kSum, stream);
    }
    arena_->hold(flat_, bucket.reduced.fence());
  }
}

void BucketedGradients::finish(Stream& stream) {
  advance(/*finishing=*/true, stream);
  for (const Bucket& bucket : buckets_) stream.wait(bucket.reduced);
  std::vector<Event> sums;
  for (const auto& [parameter, stages] : groups_.tied) {
    sums.push_back(
        stages->all_reduce(gradient_of(entry_of_.at(parameter)), Reduction::kSum, stream));
    arena_->hold(flat_, sums.back().fence());
  }
  for (const Event& event : sums) stream.wait(event);
}

}  // namespace piton
