#include "nn/kv_cache.h"

#include <algorithm>

namespace piton {

KvCache::KvCache(Arena& arena, std::int64_t samples, std::int64_t capacity)
    : arena_(arena), capacity_(capacity), lengths_(static_cast<std::size_t>(samples), 0) {}

void KvCache::add_layer(std::int64_t layer, DType dtype, std::int64_t groups,
                        std::int64_t head_size) {
  PITON_ASSERT(!layers_.contains(layer), "layer {} is in the cache already", layer);
  // The rows of one head are contiguous in memory, so attention reads them one after another.
  const Shape shape{samples(), groups, capacity_, head_size};
  const auto rows = [&] {
    return arena_.allocate(dtype, shape, MemoryKind::kActivations).swap_dims(1, 2);
  };
  layers_[layer] = {.keys = rows(), .values = rows()};
}

void KvCache::open(const Context& context, std::int64_t tokens) {
  PITON_ASSERT(tokens_ == 0 && tokens > 0, "a pass of {} tokens in one of {}", tokens, tokens_);
  const std::int64_t longest = *std::ranges::max_element(lengths_);
  PITON_ASSERT(longest + tokens <= capacity_, "{} + {} tokens in a cache of {}", longest, tokens,
               capacity_);
  std::vector<std::int32_t> ends;
  std::vector<std::int32_t> positions;
  for (const std::int32_t length : lengths_) {
    ends.push_back(static_cast<std::int32_t>(length + tokens));
    for (std::int32_t i = 0; i < tokens; ++i) positions.push_back(length + i);
  }
  const auto put = [&](const std::vector<std::int32_t>& host, const Shape& shape) {
    Tensor tensor = context.activation(DType::kI32, shape);
    context.device.upload(host.data(), tensor, context.stream);
    return tensor;
  };
  tokens_ = tokens;
  rows_ = {.begins = put(lengths_, {samples()}),
           .lengths = put(ends, {samples()}),
           .positions = put(positions, {samples(), tokens}),
           .longest = longest + tokens};
}

CacheView KvCache::layer(std::int64_t layer) const {
  PITON_ASSERT(tokens_ > 0, "layer {} of a cache outside of a pass", layer);
  const Layer& one = layers_.at(layer);
  return {one.keys, one.values, rows_};
}

void KvCache::close() {
  for (std::int32_t& length : lengths_) length += static_cast<std::int32_t>(tokens_);
  tokens_ = 0;
  rows_ = {};
}

void KvCache::truncate(std::int64_t length) {
  for (std::int64_t sample = 0; sample < samples(); ++sample) truncate(sample, length);
}

void KvCache::truncate(std::int64_t sample, std::int64_t length) {
  PITON_ASSERT(tokens_ == 0 && length >= 0 && length <= lengths_[sample],
               "cannot set a cache of {} tokens to {}", lengths_[sample], length);
  lengths_[sample] = static_cast<std::int32_t>(length);
}

void KvCache::copy_samples(const Context& context, const KvCache& from,
                           std::span<const std::int32_t> samples) {
  PITON_ASSERT(this != &from && std::ssize(samples) == this->samples() &&
                   capacity_ == from.capacity_ && tokens_ == 0 && from.tokens_ == 0,
               "{} samples for a cache of {}", samples.size(), this->samples());
  const auto copy = [&](const Tensor& to, const Tensor& source) {
    for (std::int64_t i = 0; i < this->samples(); ++i) {
      context.device.copy(to.swap_dims(1, 2).slice(0, i, 1),
                          source.swap_dims(1, 2).slice(0, samples[static_cast<std::size_t>(i)], 1),
                          context.stream);
    }
  };
  for (auto& [index, layer] : layers_) {
    const Layer& source = from.layers_.at(index);
    copy(layer.keys, source.keys);
    copy(layer.values, source.values);
  }
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    lengths_[i] = from.lengths_[static_cast<std::size_t>(samples[i])];
  }
}

}  // namespace piton
