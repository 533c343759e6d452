// One micro-batch: plain integers on the host, rows batch-major. Row n is token (sample n /
// sequence, position n mod sequence).
#pragma once

#include <cstdint>
#include <vector>

#include "data/samples/sample.h"

namespace piton {

// What the encoder of a model with both an encoder and a decoder reads: texts with padding at their
// ends.
struct SourceRows {
  std::int64_t sequence = 0;          // ss; 0: the samples have no source
  std::vector<std::int32_t> tokens;   // [b*ss]
  std::vector<std::int32_t> lengths;  // [b], without padding

  bool given() const { return sequence > 0; }
};

struct MicroBatch {
  std::int64_t samples = 0;   // b
  std::int64_t sequence = 0;  // s
  std::int64_t sample_index =
      0;  // of the first sample, in the global batch; random masks depend on it
  std::vector<std::int32_t> tokens;     // [b*s]
  std::vector<std::int32_t> labels;     // [b*s]; -100 where there is no label
  std::vector<float> loss_mask;         // [b*s]; 0 or 1, or the weight of the token's loss
  std::vector<std::int32_t> positions;  // [b*s]; 0..s-1, or from the document's start
  std::vector<std::int32_t> segments;   // [b*s] or empty: a token attends only to its own segment
  std::vector<float> targets;  // [b*s] or empty: the number of each row with kNumberLabel, else 0
  // [b, labels] or empty: Sample::label_set of each sample. A label is then a row of it.
  std::vector<std::uint8_t> label_sets;
  // Of samples for encoders only.
  std::vector<std::int32_t> types;        // [b*s] or empty: all 0
  std::vector<std::int32_t> pair_labels;  // [b] or empty: 1 where the two parts changed places
  std::vector<float> pair_weights;        // [b] or empty: of their losses; the session sets them
  SourceRows source;            // tokens, labels and the other rows are then those of the decoder
  std::vector<Answer> answers;  // of all samples; begin and end are rows of the batch
  double loss_tokens() const;   // sum of loss_mask
};

}  // namespace piton
