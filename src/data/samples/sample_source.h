// Samples by number: rows of s + 1 token ids, of which the first s are inputs and the last s are
// labels. Interface between batches and a split of a corpus, or a blend of several.
#pragma once

#include <cstdint>
#include <span>

namespace piton {

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual std::int64_t size() const = 0;      // samples
  virtual std::int64_t sequence() const = 0;  // s
  // Fills `ids` ([s + 1]) with sample `index`, 0 <= index < size(). Thread-safe.
  virtual void sample(std::int64_t index, std::span<std::int32_t> ids) const = 0;
  // Sample `index` will be asked for soon: a source that reads files tells the system so, and does
  // not wait. Throws as sample().
  virtual void announce(std::int64_t /*index*/) const {}
};

}  // namespace piton
