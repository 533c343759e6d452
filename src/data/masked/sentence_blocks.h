// The lengths of the sentences of many documents, read block by block: memory does not grow with
// the corpus, and a block stays in the caches of a core while it is used.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/corpus/indexed_dataset.h"

namespace piton {

// Tokens of the longest sentence that a document of several sentences may have: Megatron's
// LONG_SENTENCE_LEN.
inline constexpr std::int32_t kLongSentence = 512;

// Whole documents.
struct SentenceBlock {
  // Sums that follow those of the last sentence, as if sentences without tokens came after it.
  static constexpr std::size_t kMoreSums = 16;

  std::span<const std::int64_t> starts;   // first sentence of each; the last entry is their end
  std::span<const std::int32_t> lengths;  // in tokens, of sentences starts.front() and later
  // Tokens before each of these sentences modulo 2^32, and those before their end, kMoreSums + 1
  // times; a sentence of more than kLongSentence counts as one more than that.
  std::span<const std::uint32_t> sums;
  bool has_long = false;  // a sentence is above kLongSentence

  std::size_t documents() const { return starts.size() - 1; }

  // Of the spans above.
  std::vector<std::int64_t> starts_memory;
  std::vector<std::int32_t> lengths_memory;
  std::vector<std::uint32_t> sums_memory;
};

class SentenceBlocks {
 public:
  // Of documents [first, end) of `corpus`, which must outlive it.
  SentenceBlocks(const IndexedDataset& corpus, std::int64_t first, std::int64_t end)
      : corpus_(corpus), first_(first), end_(end), next_(first) {}

  // Fills `block` with the next documents, at least one. False after the last one.
  bool next(SentenceBlock& block);
  // The next block is the first one again.
  void restart() { next_ = first_; }

 private:
  const IndexedDataset& corpus_;
  std::int64_t first_;
  std::int64_t end_;
  std::int64_t next_;  // document
};

}  // namespace piton
