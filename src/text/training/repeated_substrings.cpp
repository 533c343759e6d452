#include "text/training/repeated_substrings.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

// All words, each followed by a 0, as ranks of characters: 1, 2, ... by code point.
struct FlatWords {
  std::vector<std::uint32_t> ranks;
  std::vector<char32_t> characters;  // by rank; [0] ends a word
};

FlatWords flatten(std::span<const CountedWord> words) {
  std::vector<std::uint32_t> rank_of(0x110001, 0);
  FlatWords flat;
  const auto each = [&](auto&& use) {
    for (const CountedWord& word : words) {
      for (std::size_t at = 0; at < word.text.size();) {
        const Utf8Char c = decode_utf8(word.text, at);
        use(c.value);
        at += c.length;
      }
      use(0);
    }
  };
  std::size_t size = 0;
  each([&](char32_t c) {
    rank_of[c] = 1;
    ++size;
  });
  if (size >= std::numeric_limits<std::uint32_t>::max()) {
    throw Error(Fault::kData,
                "{} characters in the different words, wanted fewer than {}; train on a part of "
                "the text",
                size, std::numeric_limits<std::uint32_t>::max());
  }
  rank_of[0] = 0;
  flat.characters.push_back(0);
  for (char32_t c = 1; c < rank_of.size(); ++c) {
    if (rank_of[c] == 0) continue;
    rank_of[c] = static_cast<std::uint32_t>(flat.characters.size());
    flat.characters.push_back(c);
  }
  flat.ranks.reserve(size);
  each([&](char32_t c) { flat.ranks.push_back(rank_of[c]); });
  return flat;
}

// A place in the words, with as many ranks from there on as fit into a number.
struct Suffix {
  std::uint64_t key;
  std::uint32_t at;
};

class SuffixSorter {
 public:
  // Suffixes are distinguished by `depth` characters, and by what is before the end of the word.
  SuffixSorter(const FlatWords& flat, std::int64_t depth)
      : ranks_(flat.ranks), depth_(static_cast<std::size_t>(depth)) {
    bits_ = std::bit_width(flat.characters.size() - 1);
    bits_ = std::max(bits_, 1);
    in_key_ = std::min<std::size_t>(64 / static_cast<std::size_t>(bits_), depth_);
  }

  std::vector<Suffix> sorted(ThreadPool& threads) const {
    std::vector<Suffix> suffixes;
    for (std::size_t at = 0; at < ranks_.size(); ++at) {
      if (ranks_[at] != 0) suffixes.push_back({key_at(at), static_cast<std::uint32_t>(at)});
    }
    const auto less = [this](const Suffix& a, const Suffix& b) { return before(a, b); };
    const std::int64_t parts = std::bit_floor(static_cast<std::uint64_t>(threads.threads()));
    const auto edge = [&](std::int64_t part) {
      return suffixes.begin() + std::ssize(suffixes) * part / parts;
    };
    threads.run(parts, [&](std::int64_t part) { std::sort(edge(part), edge(part + 1), less); });
    for (std::int64_t width = 1; width < parts; width *= 2) {
      threads.run(parts / (2 * width), [&](std::int64_t pair) {
        const std::int64_t first = pair * 2 * width;
        std::inplace_merge(edge(first), edge(first + width), edge(first + 2 * width), less);
      });
    }
    return suffixes;
  }

  // Characters that two suffixes begin with alike; depth where one word's end is the other's too.
  std::size_t common(const Suffix& a, const Suffix& b) const {
    std::size_t length = 0;
    while (length < depth_ && ranks_[a.at + length] == ranks_[b.at + length]) {
      if (ranks_[a.at + length] == 0) return depth_;
      ++length;
    }
    return length;
  }

 private:
  std::uint64_t key_at(std::size_t at) const {
    std::uint64_t key = 0;
    bool inside = true;
    for (std::size_t i = 0; i < in_key_; ++i) {
      inside = inside && ranks_[at + i] != 0;
      key = key << bits_ | (inside ? ranks_[at + i] : 0);
    }
    return key;
  }
  bool before(const Suffix& a, const Suffix& b) const {
    if (a.key != b.key) return a.key < b.key;
    const std::uint64_t last = (std::uint64_t{1} << (bits_ - 1) << 1) - 1;
    if ((a.key & last) == 0) return false;  // the word ends within the key
    for (std::size_t i = in_key_; i < depth_; ++i) {
      const std::uint32_t x = ranks_[a.at + i];
      const std::uint32_t y = ranks_[b.at + i];
      if (x != y) return x < y;
      if (x == 0) return false;
    }
    return false;
  }

  const std::vector<std::uint32_t>& ranks_;
  std::size_t depth_;
  int bits_ = 1;
  std::size_t in_key_ = 1;
};

// Suffixes [left, right) begin with the same `depth` characters.
struct Interval {
  std::uint32_t left;
  std::uint32_t right;
  std::uint32_t depth;
  std::int64_t score() const {
    return static_cast<std::int64_t>(right - left) * static_cast<std::int64_t>(depth);
  }
};

// The largest intervals of every depth from 2 to `longest` at which suffixes part.
std::vector<Interval> intervals_of(const std::vector<Suffix>& suffixes, const SuffixSorter& sorter,
                                   std::size_t longest) {
  struct Open {
    std::size_t depth;
    std::size_t left;
  };
  std::vector<Interval> found;
  std::vector<Open> open = {{0, 0}};
  for (std::size_t i = 1; i <= suffixes.size(); ++i) {
    const std::size_t common =
        i < suffixes.size() ? sorter.common(suffixes[i - 1], suffixes[i]) : 0;
    std::size_t left = i - 1;
    while (open.back().depth > common) {
      const Open top = open.back();
      open.pop_back();
      left = top.left;
      if (top.depth >= 2 && top.depth <= longest) {
        found.push_back({static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(i),
                         static_cast<std::uint32_t>(top.depth)});
      }
    }
    if (open.back().depth < common) open.push_back({common, left});
  }
  return found;
}

}  // namespace

std::vector<RepeatedSubstring> repeated_substrings(std::span<const CountedWord> words,
                                                   std::int64_t longest, std::size_t most,
                                                   ThreadPool& threads) {
  const FlatWords flat = flatten(words);
  // One character more, to see where substrings of the longest length part.
  const SuffixSorter sorter(flat, longest + 1);
  const std::vector<Suffix> suffixes = sorter.sorted(threads);
  std::vector<Interval> intervals =
      intervals_of(suffixes, sorter, static_cast<std::size_t>(longest));
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    if (a.score() != b.score()) return a.score() > b.score();
    return std::pair(a.left, a.depth) > std::pair(b.left, b.depth);
  });
  if (intervals.size() > most) intervals.resize(most);
  std::vector<RepeatedSubstring> substrings;
  substrings.reserve(intervals.size());
  for (const Interval& interval : intervals) {
    RepeatedSubstring& one = substrings.emplace_back();
    one.places = interval.right - interval.left;
    one.characters = interval.depth;
    const std::size_t at = suffixes[interval.left].at;
    for (std::size_t i = 0; i < interval.depth; ++i) {
      append_utf8(flat.characters[flat.ranks[at + i]], one.text);
    }
  }
  return substrings;
}

}  // namespace piton
