// What datasets of masked words are made of, and the part that they share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "data/masked/masked_vocabulary.h"
#include "data/masked/sentence_spans.h"
#include "data/samples/numpy_random.h"
#include "data/samples/sample.h"

namespace piton {

struct MaskedData {
  std::shared_ptr<const IndexedDataset> corpus;
  std::shared_ptr<const MaskedVocabulary> vocabulary;
  SentenceSpans spans;
  std::int64_t sequence = 0;  // s: tokens of a row; T5: of the encoder
  double probability = 0.15;  // of masking
  std::uint32_t seed = 1234;  // of the draws of the samples

  // The run of sample `index`, 0 <= index < number of spans.
  const SentenceSpan& span(std::int64_t index) const {
    return spans.spans.at(static_cast<std::size_t>(index));
  }
  // numpy's RandomState of sample `index`.
  NumpyRandom random(std::int64_t index) const {
    return NumpyRandom(seed + static_cast<std::uint32_t>(index));
  }
  // Sets tokens, positions, segments and length of `sample`: `ids` and padding, which is id 0
  // whatever the vocabulary's is. As in Megatron, a token with the id of padding is padding
  // wherever it is.
  void set_row(std::span<const std::int32_t> ids, Sample& sample) const;
};

}  // namespace piton
