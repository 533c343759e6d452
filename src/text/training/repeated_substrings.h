// Substrings of words that occur at several places: the candidates for a unigram vocabulary.
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
  std::int64_t places = 0;  // number of occurrences; each distinct word counts once
  std::int64_t characters = 0;
};

// The substrings of 2 to `longest` characters that occur at two or more places and are followed by
// different characters there, where the end of a word counts as a character. These are the inner
// nodes of the suffix tree of all words. Returns at most `most` of them, in falling order of
// places * characters; equal ones in falling order of code points.
std::vector<RepeatedSubstring> repeated_substrings(std::span<const CountedWord> words,
                                                   std::int64_t longest, std::size_t most,
                                                   ThreadPool& threads);

}  // namespace piton
