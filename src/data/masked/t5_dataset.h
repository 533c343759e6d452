// Samples for T5 (Raffel et al. 2020, arXiv:1910.10683), equal to those of Megatron-core 0.16.1
// (T5MaskedWordPieceDataset). Sample k of seed S draws from numpy's RandomState(S + k):
//
//   tokens    a b <0> e f <1> h 0 ...      the text with a sentinel in place of each masked span
//   decoder   [BOS] <0> c d <1> g 0 ...    the sentinels, each with its span
//   labels    <0> c d <1> g [EOS] . ...    what follows each token of the decoder, or kNoLabel
//
// Sentinels are used in their order. The text is cut to its target (sentence_spans.h) at its end.
#pragma once

#include "data/masked/masked_data.h"
#include "data/samples/sample_source.h"

namespace piton {

class T5Dataset final : public SampleSource {
 public:
  // Tokens by which a text is shorter than the row of the encoder; Megatron keeps them free.
  static constexpr std::int64_t kAdded = 2;

  // `decoder_sequence`: tokens of a row of the decoder. Targets must be at most s - kAdded.
  T5Dataset(MaskedData data, std::int64_t decoder_sequence);

  std::int64_t size() const override { return std::ssize(data_.spans.spans); }
  std::int64_t sequence() const override { return data_.sequence; }
  // Throws Error(kData) if the spans need more sentinels than the vocabulary has, or do not fit
  // into the decoder.
  void sample(std::int64_t index, Sample& sample) const override;

 private:
  void check(const SentenceSpan& span, std::int64_t spans, std::int64_t length) const;

  MaskedData data_;
  std::int64_t decoder_sequence_;
};

}  // namespace piton
