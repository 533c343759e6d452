#include "nn/source_cache.h"

#include <numeric>

#include "nn/cache_pages.h"

namespace piton {
namespace {

Tensor put(const Context& context, const std::vector<std::int32_t>& host, const Shape& shape) {
  Tensor tensor = context.activation(DType::kI32, shape);
  context.device.upload(host.data(), tensor, context.stream);
  return tensor;
}

}  // namespace

void SourceCache::add_layer(std::int64_t layer, DType dtype, std::int64_t groups,
                            std::int64_t head_size) {
  PITON_ASSERT(!layers_.contains(layer), "layer {} is in the cache already", layer);
  layers_[layer] = {.dtype = dtype, .groups = groups, .head_size = head_size};
}

void SourceCache::set(const Context& context, std::span<const std::int32_t> ids) {
  PITON_ASSERT(!ids.empty(), "a source without ids");
  tokens_ = std::ssize(ids);
  unread_ = put(context, {ids.begin(), ids.end()}, {tokens_});
  std::vector<std::int32_t> slots(ids.size());
  std::iota(slots.begin(), slots.end(), 0);
  slots_ = put(context, slots, {tokens_});
  for (auto& [index, layer] : layers_) {
    for (Tensor* to : {&layer.keys, &layer.values}) {
      *to = arena_
                ->allocate(layer.dtype,
                           {pages_of(tokens_), layer.groups, kCachePage, layer.head_size},
                           MemoryKind::kActivations)
                .swap_dims(1, 2);
    }
  }
}

void SourceCache::open(const Context& context, std::int64_t rows) {
  const std::int64_t pages = pages_of(tokens_);
  std::vector<std::int32_t> begins(static_cast<std::size_t>(rows + 1));
  std::iota(begins.begin(), begins.end(), 0);
  const std::vector<std::int32_t> lengths(static_cast<std::size_t>(rows),
                                          static_cast<std::int32_t>(tokens_));
  std::vector<std::int32_t> table;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t page = 0; page < pages; ++page)
      table.push_back(static_cast<std::int32_t>(page));
  }
  rows_ = {.begins = put(context, begins, {rows + 1}),
           .lengths = put(context, lengths, {rows}),
           .table = put(context, table, {rows, pages}),
           .pairs = static_cast<double>(rows * tokens_)};
}

CacheView SourceCache::layer(std::int64_t layer) const {
  const Layer& one = layers_.at(layer);
  return {one.keys, one.values, rows_};
}

}  // namespace piton
