// Pre-tokenizers, the second step of a tokenizer.json: from a text to words.
//
// Words are ranges of one buffer; a step may rewrite the buffer (prefixes, replaced spaces).
// Follows the semantics of the `tokenizers` library.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/unicode/characters.h"
#include "text/unicode/pattern.h"
#include "text/unicode/scanners.h"

namespace piton {

struct Words {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> ranges;  // [begin, end), in order, not empty

  std::string_view word(std::size_t i) const {
    return std::string_view(text).substr(ranges[i].first, ranges[i].second - ranges[i].first);
  }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // `first`: the words are at the start of the whole text (for prepend schemes).
  virtual void apply(Words& words, bool first) const = 0;
};

// What a split does with the delimiters.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

enum class PrependScheme { kFirst, kNever, kAlways };

std::unique_ptr<PreTokenizer> make_sequence(std::vector<std::unique_ptr<PreTokenizer>> steps);
// `invert`: the text that does not match is the delimiter.
std::unique_ptr<PreTokenizer> make_split(Pattern pattern, SplitBehavior behavior, bool invert);
std::unique_ptr<PreTokenizer> make_split(std::string literal, SplitBehavior behavior, bool invert);
std::unique_ptr<PreTokenizer> make_scan(Scanner scanner,
                                        std::shared_ptr<const CharacterTable> table);
// Adds a space before every word that does not begin with one (ByteLevel's add_prefix_space).
std::unique_ptr<PreTokenizer> make_prefix_space();
// Spells words in the byte-level alphabet.
std::unique_ptr<PreTokenizer> make_byte_spelling();
std::unique_ptr<PreTokenizer> make_whitespace_split();
// \w+|[^\w\s]+
std::unique_ptr<PreTokenizer> make_whitespace();
std::unique_ptr<PreTokenizer> make_punctuation(SplitBehavior behavior);
std::unique_ptr<PreTokenizer> make_digits(bool individual);
std::unique_ptr<PreTokenizer> make_metaspace(std::string replacement, PrependScheme scheme,
                                             bool split);

}  // namespace piton
