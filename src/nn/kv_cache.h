// Keys and values of the tokens so far, for each layer of a stage.
//
// A pass reads the tokens after those in the cache: open() says how many, each layer appends its
// keys and values and attends to all of them, close() counts them. Lengths are read from the
// device, sample by sample, so samples of one batch may differ: after a pass over prompts that were
// padded to one length, truncate() takes each sample back to its own.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ops/attention.h"

namespace piton {

class KvCache {
 public:
  // No layers yet: chunks add theirs (Chunk::add_layers).
  KvCache(Arena& arena, std::int64_t samples, std::int64_t capacity);
  // `layer` counts the layers of the whole model.
  void add_layer(std::int64_t layer, DType dtype, std::int64_t groups, std::int64_t head_size);

  // A pass of `tokens` tokens a sample; asserts room.
  void open(const Context& context, std::int64_t tokens);
  CacheView layer(std::int64_t layer) const;  // in a pass
  void close();

  std::int64_t samples() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t capacity() const { return capacity_; }
  // Tokens of a sample, those of an open pass not counted.
  std::int64_t length(std::int64_t sample = 0) const { return lengths_[sample]; }
  void truncate(std::int64_t length);  // every sample
  void truncate(std::int64_t sample, std::int64_t length);

 private:
  struct Layer {
    Tensor keys;  // [b, capacity, g/t, d], a view of [b, g/t, capacity, d]
    Tensor values;
  };
  Arena& arena_;
  std::int64_t capacity_;
  std::vector<std::int32_t> lengths_;
  std::map<std::int64_t, Layer> layers_;
  std::int64_t tokens_ = 0;  // of the open pass
  CacheRows rows_;           // of the open pass
};

}  // namespace piton
