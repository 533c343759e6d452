// Samples for BERT (Devlin et al. 2019, arXiv:1810.04805), equal to those of Megatron-core 0.16.1
// (BERTMaskedWordPieceDataset). Sample k of seed S draws from numpy's RandomState(S + k):
//
//   tokens   [CLS] first part [SEP] second part [SEP] 0 ...    some of them masked
//   types      0     0 ...      0     1 ...       1   0 ...
//   labels   what was at a masked place, else kNoLabel
//
// The sentences of a run (sentence_spans.h) are divided at a random one, and the parts change
// places with probability 1/2: the model also learns whether they did (Sample::swapped). If they
// are too long, the longer part loses tokens, each from a random end.
#pragma once

#include "data/masked/masked_data.h"
#include "data/samples/sample_source.h"

namespace piton {

class BertDataset final : public SampleSource {
 public:
  // Tokens of a row that are not of the text.
  static constexpr std::int64_t kAdded = 3;

  // `pairs`: false for one part, without [SEP] and a second one. Runs must have two sentences or
  // more for pairs, and targets of at most s - kAdded.
  BertDataset(MaskedData data, bool pairs);

  std::int64_t size() const override { return std::ssize(data_.spans.spans); }
  std::int64_t sequence() const override { return data_.sequence; }
  void sample(std::int64_t index, Sample& sample) const override;

 private:
  MaskedData data_;
  bool pairs_;
};

}  // namespace piton
