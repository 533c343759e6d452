// The number of occurrences of each word of a corpus. Each distinct word is stored once: the memory
// depends on the number of distinct words, not on the size of the corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace piton {

struct CountedWord {
  std::string_view text;  // not empty
  std::int64_t count = 0;
};

class WordCounts {
 public:
  WordCounts() : slots_(kFirstSlots, 0) {}

  void add(std::string_view word, std::int64_t count = 1);
  void add(const WordCounts& other);

  std::int64_t size() const { return static_cast<std::int64_t>(entries_.size()); }
  // The words in the order of their bytes, so that the result does not depend on threads or on the
  // order of the corpus. The texts are valid as long as the table.
  std::vector<CountedWord> sorted() const;

 private:
  struct Entry {
    const char* text = nullptr;
    std::uint64_t hash = 0;
    std::int64_t count = 0;
    std::uint32_t length = 0;
  };
  void add(std::string_view word, std::uint64_t hash, std::int64_t count);
  void grow();
  const char* keep(std::string_view word);

  static constexpr std::size_t kFirstSlots = 1 << 12;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // one more than the entry; 0: free
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::size_t left_ = 0;  // bytes of the last block
  char* free_ = nullptr;
};

}  // namespace piton
