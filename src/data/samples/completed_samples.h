// The samples of another source, and as many of padding after them as complete the last batch.
// Those have no label and no answer: a mean over the labels of all batches is that of the samples
// alone.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "data/samples/sample_source.h"

namespace piton {

class CompletedSamples final : public SampleSource {
 public:
  CompletedSamples(std::shared_ptr<const SampleSource> samples, std::int64_t batch)
      : samples_(std::move(samples)), batch_(batch) {}

  // A multiple of the batch.
  std::int64_t size() const override { return (samples_->size() + batch_ - 1) / batch_ * batch_; }
  std::int64_t sequence() const override { return samples_->sequence(); }
  void sample(std::int64_t index, Sample& sample) const override;
  std::int64_t longest(std::int64_t index) const override {
    return index < samples_->size() ? samples_->longest(index) : 1;
  }
  void announce(std::int64_t index) const override {
    if (index < samples_->size()) samples_->announce(index);
  }

 private:
  std::shared_ptr<const SampleSource> samples_;
  std::int64_t batch_;
};

}  // namespace piton
