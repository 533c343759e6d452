#include "nn/kv_cache.h"

#include <algorithm>

namespace piton {

void KvCache::add_layer(std::int64_t layer, DType dtype, std::int64_t groups,
                        std::int64_t head_size) {
  PITON_ASSERT(!layers_.contains(layer), "layer {} is in the cache already", layer);
  PITON_ASSERT(pages_.size() == 0, "layer {} of a cache that has pages", layer);
  layers_[layer] = {.dtype = dtype, .groups = groups, .head_size = head_size};
}

void KvCache::grow(const Context& context, std::int64_t pages) {
  PITON_ASSERT(!is_open_, "a cache grows between passes");
  const std::int64_t before = pages_.size();
  pages_.grow(pages);
  // The rows of one head are contiguous in a page, so attention reads them one after another.
  const auto grown = [&](DType dtype, const Shape& shape, const Tensor& from) {
    const Tensor to = arena_->allocate(dtype, shape, MemoryKind::kActivations);
    if (before > 0)
      context.device.copy(to.slice(0, 0, before), from.swap_dims(1, 2), context.stream);
    return to.swap_dims(1, 2);
  };
  const bool coded = numbers_ == CacheNumbers::kInt8;
  for (auto& [index, layer] : layers_) {
    const Shape rows{pages, layer.groups, kCachePage, layer.head_size};
    const DType dtype = coded ? DType::kU8 : layer.dtype;
    layer.keys = grown(dtype, rows, layer.keys);
    layer.values = grown(dtype, rows, layer.values);
    if (!coded) continue;
    const Shape scales{pages, layer.groups, kCachePage};
    layer.key_scales = grown(DType::kF32, scales, layer.key_scales);
    layer.value_scales = grown(DType::kF32, scales, layer.value_scales);
  }
}

std::int64_t KvCache::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [index, layer] : layers_)
    layer.for_each([&](const Tensor& tensor) { bytes += tensor.bytes(); });
  return bytes;
}

void KvCache::open(const Context& context, std::span<const CachePass> texts) {
  PITON_ASSERT(!is_open_ && !texts.empty(), "a pass of {} texts", texts.size());
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> begins{0};
  std::vector<std::int32_t> lengths;
  std::vector<std::pair<std::int32_t, std::int32_t>> copies;
  std::size_t longest = 0;
  rows_ = {};
  positions_.clear();
  angle_lengths_.clear();
  for (const CachePass& one : texts) {
    PITON_ASSERT(one.tokens > 0, "a pass of {} tokens of text {}", one.tokens, one.text);
    const std::int64_t begin = pages_.length(one.text);
    pages_.append(one.text, one.tokens, copies);
    const std::int64_t end = begin + one.tokens;
    const std::vector<std::int32_t>& table = pages_.table(one.text);
    for (std::int64_t position = begin; position < end; ++position) {
      slots.push_back(static_cast<std::int32_t>(
          table[static_cast<std::size_t>(position / kCachePage)] * kCachePage +
          position % kCachePage));
      positions_.push_back(static_cast<std::int32_t>(position));
      angle_lengths_.push_back(std::max(one.whole, position + 1));
      rows_.pairs += static_cast<double>(position + 1);
    }
    begins.push_back(static_cast<std::int32_t>(slots.size()));
    lengths.push_back(static_cast<std::int32_t>(end));
    longest = std::max(longest, table.size());
  }
  std::vector<std::int32_t> table;
  for (const CachePass& one : texts) {
    const std::vector<std::int32_t>& pages = pages_.table(one.text);
    table.insert(table.end(), pages.begin(), pages.end());
    table.resize(table.size() + longest - pages.size(), 0);
  }
  const auto put = [&](const std::vector<std::int32_t>& host, const Shape& shape) {
    Tensor tensor = context.activation(DType::kI32, shape);
    context.device.upload(host.data(), tensor, context.stream);
    return tensor;
  };
  const auto b = std::ssize(texts);
  rows_.slots = put(slots, {std::ssize(slots)});
  rows_.begins = put(begins, {b + 1});
  rows_.lengths = put(lengths, {b});
  rows_.table = put(table, {b, static_cast<std::int64_t>(longest)});
  copy_pages(context, copies);
  if (source_.given()) source_.open(context, std::ssize(slots));
  is_open_ = true;
}

void KvCache::copy_pages(const Context& context,
                         std::span<const std::pair<std::int32_t, std::int32_t>> copies) {
  const auto copy = [&](const Tensor& all, std::int32_t from, std::int32_t to) {
    const Tensor pages = all.swap_dims(1, 2);
    context.device.copy(pages.slice(0, to, 1), pages.slice(0, from, 1), context.stream);
  };
  for (const auto& copied : copies) {
    for (const auto& [index, layer] : layers_) {
      layer.for_each([&](const Tensor& tensor) { copy(tensor, copied.first, copied.second); });
    }
  }
}

CacheView KvCache::layer(std::int64_t layer) const {
  PITON_ASSERT(is_open_, "layer {} of a cache outside of a pass", layer);
  const Layer& one = layers_.at(layer);
  return {one.keys, one.values, rows_, one.key_scales, one.value_scales};
}

void KvCache::close() {
  is_open_ = false;
  rows_ = {};
}

}  // namespace piton
