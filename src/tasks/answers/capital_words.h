// Words in capital letters, as NLTK 3.10's word_tokenize() divides words.
#pragma once

#include <cstdint>
#include <string>

namespace piton {

// The number of words that have capital letters and no small ones. Ends of sentences make no
// difference, so they are not looked for.
std::int64_t capital_word_count(std::string text);

}  // namespace piton
