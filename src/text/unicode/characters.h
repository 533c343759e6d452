// Classes of characters (letter, number, white space, ...) for the regular expressions of
// tokenizers.
//
// Unicode 16.0: the properties of ICU (15.0) and the additions in unicode_additions.h, in a flat
// table of one byte per code point, so that a scanner needs one load per character.
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

  // `c`: a scalar value, or kBadByte, which has no flags.
  std::uint8_t flags(char32_t c) const { return flags_[c]; }
  bool has(char32_t c, std::uint8_t any) const { return (flags_[c] & any) != 0; }

 private:
  std::vector<std::uint8_t> flags_;  // [0x110001]
};

// White_Space, as Rust's char::is_whitespace and \s.
bool is_white_space(char32_t c);
// \w of Unicode regular expressions: Alphabetic, M, Nd, Pc, Join_Control.
bool is_word_character(char32_t c);
// N*: the digits of the pre-tokenizer Digits.
bool is_numeric(char32_t c);

// The general category in a given Unicode version, 8 or later, as an ICU mask (U_GC_P_MASK, ...):
// the tables of other implementations have different versions. Characters added later are
// unassigned (Cn). Of the characters that changed category since, only those that matter for the
// results of the other implementations are handled.
std::uint32_t categories_in_unicode(char32_t c, int version);
// P* of Unicode 8.0 and the ASCII symbols ($ + < = > ^ ` | ~): where the pre-tokenizers Punctuation
// and BertPreTokenizer split.
bool is_bert_punctuation(char32_t c);
// Control, format and private-use characters of Unicode 8.0 except tab, newline and carriage
// return: the characters that BertNormalizer removes.
bool is_bert_control(char32_t c);
// The blocks of ideographs that BERT puts spaces around.
bool is_bert_ideograph(char32_t c);

// Appends the lower case of `c` (full mapping, without context).
void append_lower_case(char32_t c, std::string& out);

}  // namespace piton
