// A learned bias of attention scores for each bucket of distances and each head (Raffel et al.
// 2020, arXiv:1910.10683, section 2.1; Transformers, T5Attention._relative_position_bucket).
//
// A distance is that of a key after its query. Of n buckets, those of distances that are seen:
//   both directions   n / 2 for keys at or before the query, n / 2 for those after it
//   one direction     n for keys at or before the query; those after it are in bucket 0
// Of m buckets of one direction, the first m / 2 have a distance each; the others are as long as
// powers, up to `farthest`, and the last one has all that are farther.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention.h"

namespace piton {

struct DistanceBuckets {
  std::int64_t buckets = 32;     // n
  std::int64_t farthest = 128;   // distance from which all are in the last bucket
  bool both_directions = false;  // keys after the query are seen

  // From 0 to n - 1.
  std::int32_t of(std::int64_t distance) const;
  // Of distances first, first + 1, ..., first + count - 1.
  std::vector<std::int32_t> of_range(std::int64_t first, std::int64_t count) const;
};

// Column c of the result is row ids[c] of `table` [buckets, a/t]. ids: int32 [w] -> fp32 (fp64)
// [a/t, w], for DistanceBias.
Value relative_bias(Context& context, const Tensor& ids, Parameter& table);

}  // namespace piton
