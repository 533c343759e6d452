// Keys and values of the tokens so far, for each layer of a stage.
//
// A pass runs the model on the tokens that follow those in the cache. open() starts it with their
// number; each layer appends its keys and values and attends to all of them; close() adds the
// tokens to the lengths. Kernels read the length of each sample from the device, so samples of one
// batch may have different lengths: after a pass over prompts that were padded to one length,
// truncate() sets each sample to its own.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ops/attention.h"

namespace piton {

class KvCache {
 public:
  // A cache without layers, with room for `capacity` tokens of each sample. Chunks add their layers
  // (Chunk::add_layers).
  KvCache(Arena& arena, std::int64_t samples, std::int64_t capacity);
  // `layer`: index among the layers of the whole model. `groups`: key-value heads of this rank,
  // g/t.
  void add_layer(std::int64_t layer, DType dtype, std::int64_t groups, std::int64_t head_size);

  // Starts a pass of `tokens` tokens of each sample. Asserts that there is room for them.
  void open(const Context& context, std::int64_t tokens);
  CacheView layer(std::int64_t layer) const;  // only between open() and close()
  void close();

  std::int64_t samples() const { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t capacity() const { return capacity_; }
  // Tokens of a sample, without those of an open pass.
  std::int64_t length(std::int64_t sample = 0) const { return lengths_[sample]; }
  void truncate(std::int64_t length);  // every sample
  void truncate(std::int64_t sample, std::int64_t length);

  // Sample i becomes what sample samples[i] of `from` is: its tokens, keys and values. `from` is
  // another cache with the same layers and capacity, outside of a pass as this one is.
  void copy_samples(const Context& context, const KvCache& from,
                    std::span<const std::int32_t> samples);

 private:
  struct Layer {
    Tensor keys;    // [b, capacity, g/t, d], a view of [b, g/t, capacity, d]
    Tensor values;  // the same
  };
  Arena& arena_;
  std::int64_t capacity_;
  std::vector<std::int32_t> lengths_;
  std::map<std::int64_t, Layer> layers_;
  std::int64_t tokens_ = 0;  // of the open pass
  CacheRows rows_;           // of the open pass
};

}  // namespace piton
