// Sets of characters, and the bytes that write them.
#pragma once

#include <string_view>
#include <vector>

#include "generate/constraints/byte_grammar.h"

namespace piton {

struct ScalarRange {
  char32_t first = 0;  // Unicode scalar values, both inclusive
  char32_t last = 0;
};
using CharacterSet = std::vector<ScalarRange>;

// Sorted ranges that do not touch, without surrogates.
CharacterSet normalized(CharacterSet set);
// All scalar values that are not in `set`.
CharacterSet complement(const CharacterSet& set);

enum class TextForm : std::uint8_t {
  kPlain,       // UTF-8
  kJsonString,  // UTF-8, with ", \ and control characters as JSON's escapes
};

// One character of `set`.
GrammarBuilder::Part one_of(GrammarBuilder& grammar, const CharacterSet& set, TextForm form);
// The characters of `text`, which is UTF-8, as a JSON string without quotes.
GrammarBuilder::Part json_text(GrammarBuilder& grammar, std::string_view text);

}  // namespace piton
