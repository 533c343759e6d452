// What a character is: letter, number, white space, ... as the regular expressions of tokenizers
// ask.
//
// Unicode 16.0: the properties of ICU (15.0) and the additions in unicode_additions.h, flat, one
// byte a code point, so that a scanner pays one load a character.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "text/unicode/utf8.h"

namespace piton {

class CharacterTable {
 public:
  enum Flag : std::uint8_t {
    kLetter = 1,        // \p{L}
    kNumber = 2,        // \p{N}
    kSpace = 4,         // \s: White_Space
    kMark = 8,          // \p{M}
    kPunctuation = 16,  // \p{P}
    kSymbol = 32,       // \p{S}
    kUpper = 64,        // \p{Lu} \p{Lt}
    kLower = 128,       // \p{Ll}
  };

  CharacterTable();

  // `c` is a scalar value or kBadByte, which is nothing.
  std::uint8_t flags(char32_t c) const { return flags_[c]; }
  bool has(char32_t c, std::uint8_t any) const { return (flags_[c] & any) != 0; }

 private:
  std::vector<std::uint8_t> flags_;  // [0x110001]
};

// White_Space, as Rust's char::is_whitespace and \s.
bool is_white_space(char32_t c);
// \w of Unicode regular expressions: Alphabetic, M, Nd, Pc, Join_Control.
bool is_word_character(char32_t c);
// N*: what the pre-tokenizer Digits takes for a digit.
bool is_numeric(char32_t c);

// The general category as of a version of Unicode from 8 on, a mask of ICU's (U_GC_P_MASK, ...):
// other implementations' tables are of different ages. Characters that came later are unassigned
// (Cn). Of those that have moved to another category since, the ones that the peers' answers depend
// on.
std::uint32_t categories_in_unicode(char32_t c, int version);
// P* as of Unicode 8.0, and the ASCII symbols ($ + < = > ^ ` | ~): what the pre-tokenizers
// Punctuation and BertPreTokenizer split at.
bool is_bert_punctuation(char32_t c);
// Control, format and private-use characters as of Unicode 8.0, but tab, newline and carriage
// return: what BertNormalizer removes.
bool is_bert_control(char32_t c);
// The blocks of ideographs that BERT puts spaces around.
bool is_bert_ideograph(char32_t c);

// Appends the lower case of `c` (full mapping, without context).
void append_lower_case(char32_t c, std::string& out);

}  // namespace piton
