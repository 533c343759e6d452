// Keys and values of the tokens so far, for each layer of this rank: views [b, capacity, g/t, d]
// of [b, g/t, capacity, d] each.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention.h"

namespace piton {

class KvCache {
 public:
  KvCache(Arena& arena, DType dtype, std::int64_t layers, std::int64_t batch, std::int64_t capacity,
          std::int64_t groups, std::int64_t head_size);
  CacheView layer(std::int64_t index) const;  // begin = length()
  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return capacity_; }
  void advance(std::int64_t tokens);  // asserts room
  void truncate(std::int64_t length);

 private:
  std::vector<Tensor> keys_;
  std::vector<Tensor> values_;
  std::int64_t length_ = 0;
  std::int64_t capacity_ = 0;
};

}  // namespace piton
