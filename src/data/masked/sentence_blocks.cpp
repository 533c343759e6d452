#include "data/masked/sentence_blocks.h"

#include <algorithm>

namespace piton {
namespace {

// Most of one block; a document with more sentences is a block alone.
constexpr std::int64_t kDocuments = std::int64_t{1} << 12;
constexpr std::int64_t kSentences = std::int64_t{1} << 16;

// The first `size` places of `memory`, which grows if it has fewer.
template <typename T>
std::span<T> places(std::vector<T>& memory, std::int64_t size) {
  const auto count = static_cast<std::size_t>(size);
  if (memory.size() < count) memory.resize(count);
  return std::span(memory).first(count);
}

void sum_up(SentenceBlock& block) {
  std::int32_t longest = 0;
  for (const std::int32_t length : block.lengths) longest = std::max(longest, length);
  block.has_long = longest > kLongSentence;
  const std::span<std::uint32_t> sums =
      places(block.sums_memory,
             std::ssize(block.lengths) + 1 + static_cast<std::int64_t>(SentenceBlock::kMoreSums));
  std::uint32_t sum = 0;
  const auto fill = [&](const auto& counted) {
    std::uint32_t* to = sums.data();
    for (const std::int32_t length : block.lengths) {
      *to++ = sum;
      sum += static_cast<std::uint32_t>(counted(length));
    }
    std::fill(to, sums.data() + sums.size(), sum);
  };
  if (block.has_long) {
    fill([](std::int32_t length) { return std::min(length, kLongSentence + 1); });
  } else {
    fill([](std::int32_t length) { return length; });
  }
  block.sums = sums;
}

}  // namespace

bool SentenceBlocks::next(SentenceBlock& block) {
  if (next_ == end_) return false;
  const std::int64_t most = std::min(kDocuments, end_ - next_);
  const std::span<std::int64_t> starts = places(block.starts_memory, most + 1);
  corpus_.read_document_starts(next_, starts);
  const auto after = std::upper_bound(starts.begin() + 1, starts.end(), starts[0] + kSentences);
  const std::int64_t count = std::max<std::int64_t>(1, after - starts.begin() - 1);
  block.starts = starts.first(static_cast<std::size_t>(count) + 1);
  const std::span<std::int32_t> lengths =
      places(block.lengths_memory, block.starts.back() - block.starts.front());
  corpus_.read_lengths(block.starts.front(), lengths);
  block.lengths = lengths;
  sum_up(block);
  next_ += count;
  return true;
}

}  // namespace piton
