// Parts of words that occur at several places: what a unigram vocabulary is chosen from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "text/training/word_counts.h"

namespace piton {

struct RepeatedSubstring {
  std::string text;
  std::int64_t places = 0;  // where it occurs, each word taken once, however frequent
  std::int64_t characters = 0;
};

// The substrings of 2 to `longest` characters that occur at two places or more and are followed by
// different characters there, the end of a word being one: inner nodes of the suffix tree of all
// words. At most `most` of them, those with the largest product of places and characters; of equal
// ones those later in the order of code points. In this order.
std::vector<RepeatedSubstring> repeated_substrings(std::span<const CountedWord> words,
                                                   std::int64_t longest, std::size_t most,
                                                   ThreadPool& threads);

}  // namespace piton
