// Token ids in numbered sequences, from which sample orders are built: a corpus on disk
// (indexed_dataset.h), or a synthetic one (../samples/mock_corpus.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace piton {

class TokenSequences {
 public:
  virtual ~TokenSequences() = default;

  virtual const std::string& name() const = 0;  // for messages: the name that a user gave
  virtual std::int64_t sequences() const = 0;

  // Lengths in ids of `count` sequences from `first` on. To read all of them, ask for kBlock at
  // once: each call reads the corpus's file.
  static constexpr std::int64_t kBlock = 1 << 16;
  virtual std::vector<std::int32_t> lengths(std::int64_t first, std::int64_t count) const = 0;

  // Copies ids of a sequence from position `first` on, as many as it has and `out` holds. Returns
  // their number, or -1 if `first` is negative or beyond the end. Throws Error(kData) if reading
  // fails.
  virtual std::int64_t read_some(std::int64_t sequence, std::int64_t first,
                                 std::span<std::int32_t> out) const = 0;

  // Tells the system that the ids which read_some() would give into `count` places will be read
  // soon: it may fetch them meanwhile. Returns as read_some(), without waiting for the ids.
  virtual std::int64_t announce(std::int64_t sequence, std::int64_t first,
                                std::int64_t count) const = 0;

  // Identifies the contents.
  virtual std::string fingerprint() const = 0;
};

}  // namespace piton
