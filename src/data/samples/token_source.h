// Rows of s + 1 token ids by number, of which the first s are inputs and the last s are labels:
// running text without masks. pretraining_samples.h makes samples of them.
#pragma once

#include <cstdint>
#include <span>

namespace piton {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::int64_t size() const = 0;      // rows
  virtual std::int64_t sequence() const = 0;  // s
  // Fills `ids` ([s + 1]) with row `index`, 0 <= index < size(). Thread-safe.
  virtual void read(std::int64_t index, std::span<std::int32_t> ids) const = 0;
  // Row `index` will be asked for soon: a source that reads files tells the system so, and does not
  // wait. Throws as read().
  virtual void announce(std::int64_t /*index*/) const {}
};

}  // namespace piton
