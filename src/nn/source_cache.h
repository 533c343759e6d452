// Keys and values of an encoder's outputs, for each layer of the decoder that attends to them. A
// text of the encoder is read once; all texts of a cache (nn/kv_cache.h) continue what follows it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ops/attention.h"

namespace piton {

class SourceCache {
 public:
  explicit SourceCache(Arena& arena) : arena_(&arena) {}
  // As KvCache::add_layer().
  void add_layer(std::int64_t layer, DType dtype, std::int64_t groups, std::int64_t head_size);

  // The text of the encoder. The next pass reads it.
  void set(const Context& context, std::span<const std::int32_t> ids);
  // The text, until a pass has read it: int32 [tokens], else empty.
  const Tensor& unread() const { return unread_; }
  std::int64_t tokens() const { return tokens_; }
  const Tensor& slots() const { return slots_; }  // of its rows, int32 [tokens]
  void read() { unread_ = {}; }

  // Starts a pass of `rows` rows, each of which sees the whole text.
  void open(const Context& context, std::int64_t rows);
  CacheView layer(std::int64_t layer) const;
  bool given() const { return tokens_ > 0; }

 private:
  struct Layer {
    DType dtype = DType::kF32;
    std::int64_t groups = 0;
    std::int64_t head_size = 0;
    Tensor keys;  // [pages, kCachePage, g/t, d], a view of [pages, g/t, kCachePage, d]
    Tensor values;
  };

  Arena* arena_;
  std::map<std::int64_t, Layer> layers_;
  std::int64_t tokens_ = 0;
  Tensor unread_;
  Tensor slots_;
  CacheRows rows_;  // of the open pass
};

}  // namespace piton
