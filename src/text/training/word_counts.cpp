#include "text/training/word_counts.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/hash.h"

namespace piton {
namespace {

constexpr std::size_t kBlockBytes = 1 << 20;

}  // namespace

void WordCounts::add(std::string_view word, std::int64_t count) { add(word, hash64(word), count); }

void WordCounts::add(const WordCounts& other) {
  for (const Entry& entry : other.entries_) {
    add(std::string_view(entry.text, entry.length), entry.hash, entry.count);
  }
}

void WordCounts::add(std::string_view word, std::uint64_t hash, std::int64_t count) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    Entry& entry = entries_[slots_[slot] - 1];
    if (entry.hash == hash && entry.length == word.size() &&
        std::memcmp(entry.text, word.data(), word.size()) == 0) {
      entry.count += count;
      return;
    }
  }
  constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();
  PITON_ASSERT(word.size() < kMost);
  if (entries_.size() + 1 >= kMost) {
    throw Error(Fault::kData, "more than {} different words; train on a part of the text", kMost);
  }
  entries_.push_back({keep(word), hash, count, static_cast<std::uint32_t>(word.size())});
  slots_[slot] = static_cast<std::uint32_t>(entries_.size());
  if (entries_.size() * 2 > slots_.size()) grow();
}

void WordCounts::grow() {
  slots_.assign(slots_.size() * 2, 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    std::size_t slot = entries_[i].hash & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<std::uint32_t>(i + 1);
  }
}

const char* WordCounts::keep(std::string_view word) {
  if (word.size() > left_) {
    const std::size_t bytes = std::max(kBlockBytes, word.size());
    free_ = blocks_.emplace_back(new char[bytes]).get();
    left_ = bytes;
  }
  char* const text = free_;
  std::memcpy(text, word.data(), word.size());
  free_ += word.size();
  left_ -= word.size();
  return text;
}

std::vector<CountedWord> WordCounts::sorted() const {
  std::vector<CountedWord> words;
  words.reserve(entries_.size());
  for (const Entry& entry : entries_) words.push_back({{entry.text, entry.length}, entry.count});
  std::sort(words.begin(), words.end(),
            [](const CountedWord& a, const CountedWord& b) { return a.text < b.text; });
  return words;
}

}  // namespace piton
