// Characters that Unicode 15.1 and 16.0 added, which the system's ICU (15.0) does not know yet and
// the regular expressions of the other implementations do. Made by
// tools/oracle/unicode_additions.py.
#pragma once

#include <cstdint>

#include "text/unicode/characters.h"

namespace piton {

struct CharacterRange {
  char32_t first;
  char32_t last;
  std::uint8_t flags;
};

namespace additions {

inline constexpr std::uint8_t kLetter = CharacterTable::kLetter;
inline constexpr std::uint8_t kUpperLetter = CharacterTable::kLetter | CharacterTable::kUpper;
inline constexpr std::uint8_t kLowerLetter = CharacterTable::kLetter | CharacterTable::kLower;
inline constexpr std::uint8_t kMark = CharacterTable::kMark;
inline constexpr std::uint8_t kNumber = CharacterTable::kNumber;
inline constexpr std::uint8_t kPunctuation = CharacterTable::kPunctuation;
inline constexpr std::uint8_t kSymbol = CharacterTable::kSymbol;

inline constexpr CharacterRange kRanges[] = {
    {0x897, 0x897, kMark},
    {0x1B4E, 0x1B4F, kPunctuation},
    {0x1B7F, 0x1B7F, kPunctuation},
    {0x1C89, 0x1C89, kUpperLetter},
    {0x1C8A, 0x1C8A, kLowerLetter},
    {0x2427, 0x2429, kSymbol},
    {0x2FFC, 0x2FFF, kSymbol},
    {0x31E4, 0x31E5, kSymbol},
    {0x31EF, 0x31EF, kSymbol},
    {0xA7CB, 0xA7CC, kUpperLetter},
    {0xA7CD, 0xA7CD, kLowerLetter},
    {0xA7DA, 0xA7DA, kUpperLetter},
    {0xA7DB, 0xA7DB, kLowerLetter},
    {0xA7DC, 0xA7DC, kUpperLetter},
    {0x105C0, 0x105F3, kLetter},
    {0x10D40, 0x10D49, kNumber},
    {0x10D4A, 0x10D4F, kLetter},
    {0x10D50, 0x10D65, kUpperLetter},
    {0x10D69, 0x10D6D, kMark},
    {0x10D6E, 0x10D6E, kPunctuation},
    {0x10D6F, 0x10D6F, kLetter},
    {0x10D70, 0x10D85, kLowerLetter},
    {0x10D8E, 0x10D8F, kSymbol},
    {0x10EC2, 0x10EC4, kLetter},
    {0x10EFC, 0x10EFC, kMark},
    {0x11380, 0x11389, kLetter},
    {0x1138B, 0x1138B, kLetter},
    {0x1138E, 0x1138E, kLetter},
    {0x11390, 0x113B5, kLetter},
    {0x113B7, 0x113B7, kLetter},
    {0x113B8, 0x113C0, kMark},
    {0x113C2, 0x113C2, kMark},
    {0x113C5, 0x113C5, kMark},
    {0x113C7, 0x113CA, kMark},
    {0x113CC, 0x113D0, kMark},
    {0x113D1, 0x113D1, kLetter},
    {0x113D2, 0x113D2, kMark},
    {0x113D3, 0x113D3, kLetter},
    {0x113D4, 0x113D5, kPunctuation},
    {0x113D7, 0x113D8, kPunctuation},
    {0x113E1, 0x113E2, kMark},
    {0x116D0, 0x116E3, kNumber},
    {0x11BC0, 0x11BE0, kLetter},
    {0x11BE1, 0x11BE1, kPunctuation},
    {0x11BF0, 0x11BF9, kNumber},
    {0x11F5A, 0x11F5A, kMark},
    {0x13460, 0x143FA, kLetter},
    {0x16100, 0x1611D, kLetter},
    {0x1611E, 0x1612F, kMark},
    {0x16130, 0x16139, kNumber},
    {0x16D40, 0x16D6C, kLetter},
    {0x16D6D, 0x16D6F, kPunctuation},
    {0x16D70, 0x16D79, kNumber},
    {0x18CFF, 0x18CFF, kLetter},
    {0x1CC00, 0x1CCEF, kSymbol},
    {0x1CCF0, 0x1CCF9, kNumber},
    {0x1CD00, 0x1CEB3, kSymbol},
    {0x1E5D0, 0x1E5ED, kLetter},
    {0x1E5EE, 0x1E5EF, kMark},
    {0x1E5F0, 0x1E5F0, kLetter},
    {0x1E5F1, 0x1E5FA, kNumber},
    {0x1E5FF, 0x1E5FF, kPunctuation},
    {0x1F8B2, 0x1F8BB, kSymbol},
    {0x1F8C0, 0x1F8C1, kSymbol},
    {0x1FA89, 0x1FA89, kSymbol},
    {0x1FA8F, 0x1FA8F, kSymbol},
    {0x1FABE, 0x1FABE, kSymbol},
    {0x1FAC6, 0x1FAC6, kSymbol},
    {0x1FADC, 0x1FADC, kSymbol},
    {0x1FADF, 0x1FADF, kSymbol},
    {0x1FAE9, 0x1FAE9, kSymbol},
    {0x1FBCB, 0x1FBEF, kSymbol},
    {0x2EBF0, 0x2EE5D, kLetter},
};

// Lower case of the new capitals: first .. last map to lower + (c - first).
struct CaseRange {
  char32_t first;
  char32_t last;
  char32_t lower;
};
inline constexpr CaseRange kLowerCase[] = {
    {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x0264}, {0xA7CC, 0xA7CC, 0xA7CD},
    {0xA7CE, 0xA7CE, 0xA7CF},    {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
    {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x019B}, {0x10D50, 0x10D65, 0x10D70},
    {0x16EA0, 0x16EB8, 0x16EBB},
};

// Numbers (N*) of Unicode 15.1 to 17.0, as the pre-tokenizer Digits knows them.
inline constexpr CharacterRange kDigits[] = {
    {0x10D40, 0x10D49, kNumber}, {0x116D0, 0x116E3, kNumber}, {0x11BF0, 0x11BF9, kNumber},
    {0x11DE0, 0x11DE9, kNumber}, {0x16130, 0x16139, kNumber}, {0x16D70, 0x16D79, kNumber},
    {0x16FF4, 0x16FF6, kNumber}, {0x1CCF0, 0x1CCF9, kNumber}, {0x1E5F1, 0x1E5FA, kNumber},
};

}  // namespace additions
}  // namespace piton
