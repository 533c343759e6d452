#include "nn/kv_cache.h"

namespace piton {

KvCache::KvCache(Arena& arena, DType dtype, std::int64_t layers, std::int64_t batch,
                 std::int64_t capacity, std::int64_t groups, std::int64_t head_size)
    : capacity_(capacity) {
  // A head's rows lie one behind the other, so that attention reads a stream.
  const Shape shape{batch, groups, capacity, head_size};
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    keys_.push_back(arena.allocate(dtype, shape, MemoryKind::kActivations).swap_dims(1, 2));
    values_.push_back(arena.allocate(dtype, shape, MemoryKind::kActivations).swap_dims(1, 2));
  }
}

CacheView KvCache::layer(std::int64_t index) const {
  return {keys_[index], values_[index], length_};
}

void KvCache::advance(std::int64_t tokens) {
  PITON_ASSERT(length_ + tokens <= capacity_, "{} + {} tokens in a cache of {}", length_, tokens,
               capacity_);
  length_ += tokens;
}

void KvCache::truncate(std::int64_t length) {
  PITON_ASSERT(length <= length_, "cannot grow a cache of {} to {}", length_, length);
  length_ = length;
}

}  // namespace piton
