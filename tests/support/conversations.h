// Samples of different lengths that teach a part of their tokens, and one global batch of them:
// padded, packed, or in rows of variable length.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "data/samples/batch_source.h"
#include "data/samples/instruction_dataset.h"
#include "data/samples/packed_samples.h"
#include "support/run_session.h"

namespace piton::test {

class Conversations final : public SampleSource {
 public:
  explicit Conversations(std::int64_t vocabulary) : vocabulary_(vocabulary) {}
  std::int64_t size() const override { return 16; }
  std::int64_t sequence() const override { return kSequence; }
  std::int64_t longest(std::int64_t index) const override { return 2 + index * 7 % 11; }
  // The first third of a sample is not learned.
  void sample(std::int64_t index, Sample& sample) const override {
    sample = {};
    sample.length = longest(index);
    for (std::int64_t i = 0; i < sample.length; ++i) {
      sample.tokens.push_back(token(index, i, vocabulary_));
      sample.labels.push_back(i < sample.length / 3 ? kNoLabel : token(index, i + 1, vocabulary_));
      sample.positions.push_back(static_cast<std::int32_t>(i));
    }
    pad_sample(0, kSequence, sample);
  }

 private:
  std::int64_t vocabulary_;
};

enum class RowForm { kPadded, kPacked, kVariable };

// The micro-batches of data rank `rank` of `ranks` of all samples, as one global batch.
inline std::vector<MicroBatch> batch_of_conversations(RowForm form, std::int64_t vocabulary,
                                                      std::int64_t micro, int rank = 0,
                                                      int ranks = 1) {
  std::shared_ptr<const SampleSource> samples = std::make_shared<Conversations>(vocabulary);
  if (form == RowForm::kPacked) {
    samples = std::make_shared<PackedSamples>(samples, PackRequest{.epochs = 1});
  }
  BatchRules rules{.vocabulary = vocabulary};
  if (form == RowForm::kVariable) rules.length_multiple = 8;
  return BatchSource(samples, rules)
      .batch({.consumed_samples = 0,
              .global_batch = samples->size(),
              .micro_batch = micro,
              .rank = rank,
              .ranks = ranks});
}

}  // namespace piton::test
