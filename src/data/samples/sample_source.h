// Samples by number. Interface between batches and what a run learns from: a split of a corpus, of
// an instruction data set, a blend of several, or samples that a program makes.
#pragma once

#include <cstdint>

#include "data/samples/sample.h"

namespace piton {

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual std::int64_t size() const = 0;      // samples
  virtual std::int64_t sequence() const = 0;  // s
  // Replaces the contents of `sample` by sample `index`, 0 <= index < size(). Thread-safe for
  // different `sample`s.
  virtual void sample(std::int64_t index, Sample& sample) const = 0;
  // At least Sample::length of sample `index`, known without reading it. Thread-safe.
  virtual std::int64_t longest(std::int64_t /*index*/) const { return sequence(); }
  // A hint that sample `index` is needed soon. A source that reads files asks the system to read
  // ahead, and returns at once. Throws as sample().
  virtual void announce(std::int64_t /*index*/) const {}
};

}  // namespace piton
