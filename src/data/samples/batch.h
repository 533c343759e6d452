// One micro-batch as a model sees it: plain integers on the host, rows batch-major.
//
// Row n of a micro-batch is token (sample n / sequence, place n mod sequence).
#pragma once

#include <cstdint>
#include <vector>

namespace piton {

struct MicroBatch {
  std::int64_t samples = 0;   // b
  std::int64_t sequence = 0;  // s
  std::int64_t sample_index =
      0;  // of the first sample, in the global batch; mask draws count from it
  std::vector<std::int32_t> tokens;     // [b*s]
  std::vector<std::int32_t> labels;     // [b*s]; -100 where nothing is to be learned
  std::vector<float> loss_mask;         // [b*s]; 0 or 1
  std::vector<std::int32_t> positions;  // [b*s]; 0..s-1, or from the document's start
  std::vector<std::int32_t> segments;   // [b*s] or empty: rows see only rows of their own segment
  double loss_tokens() const;           // sum of loss_mask
};

}  // namespace piton
