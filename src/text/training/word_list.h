// A list of indices of words. Most pairs of pieces are in a word or two, so a short list has its
// words in itself, without separate memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace piton {

class WordList {
 public:
  WordList() = default;
  WordList(WordList&& other) noexcept { *this = std::move(other); }
  WordList& operator=(WordList&& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(words_, other.words_);
    return *this;
  }
  ~WordList() {
    if (capacity_ > kOwn) delete[] words_.elsewhere;
  }

  std::uint32_t size() const { return size_; }
  std::span<std::uint32_t> words() { return {data(), size_}; }
  std::span<const std::uint32_t> words() const {
    return {capacity_ > kOwn ? words_.elsewhere : words_.own, size_};
  }

  void append(std::uint32_t word) {
    if (size_ == capacity_) grow(size_ + std::size_t{1});
    data()[size_++] = word;
  }
  // Unless it is the last of the list.
  void append_once(std::uint32_t word) {
    if (size_ == 0 || data()[size_ - 1] != word) append(word);
  }
  void append(std::span<const std::uint32_t> more) {
    const std::size_t wanted = size_ + more.size();
    if (wanted > capacity_) grow(wanted);
    std::ranges::copy(more, data() + size_);
    size_ = static_cast<std::uint32_t>(wanted);
  }
  // Ascending, each once.
  void sort() {
    std::ranges::sort(words());
    size_ = static_cast<std::uint32_t>(std::unique(data(), data() + size_) - data());
  }

 private:
  static constexpr std::uint32_t kOwn = 4;

  std::uint32_t* data() { return capacity_ > kOwn ? words_.elsewhere : words_.own; }
  // To twice its capacity, or `wanted` if that is more. There are less than 2^32 words.
  void grow(std::size_t wanted) {
    constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();
    const std::size_t capacity = std::min(std::max(wanted, std::size_t{2} * capacity_), kMost);
    auto* larger = new std::uint32_t[capacity];
    std::ranges::copy(words(), larger);
    if (capacity_ > kOwn) delete[] words_.elsewhere;
    words_.elsewhere = larger;
    capacity_ = static_cast<std::uint32_t>(capacity);
  }

  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = kOwn;
  union {
    std::uint32_t own[kOwn];
    std::uint32_t* elsewhere;  // where the capacity is more than kOwn
  } words_ = {};
};

}  // namespace piton
