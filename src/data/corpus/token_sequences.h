// Token ids in numbered sequences: a corpus on disk (indexed_dataset.h), or one that is made up
// (../samples/mock_corpus.h). What sample orders are built from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace piton {

class TokenSequences {
 public:
  virtual ~TokenSequences() = default;

  virtual const std::string& name() const = 0;  // for messages: what a user called it
  virtual std::int64_t sequences() const = 0;

  // Lengths in ids of `count` sequences from `first` on. What goes through all of them asks for
  // kBlock at once: each call reads a corpus's file.
  static constexpr std::int64_t kBlock = 1 << 16;
  virtual std::vector<std::int32_t> lengths(std::int64_t first, std::int64_t count) const = 0;

  // Copies ids of a sequence from number `first` on, as many as it has and `out` holds; returns how
  // many, or -1 where first is below 0 or beyond the end of the sequence. Throws Error(kData) as
  // reading does.
  virtual std::int64_t read_some(std::int64_t sequence, std::int64_t first,
                                 std::span<std::int32_t> out) const = 0;

  // What identifies the contents.
  virtual std::string fingerprint() const = 0;
};

}  // namespace piton
