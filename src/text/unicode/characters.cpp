#include "text/unicode/characters.h"

#include <unicode/uchar.h>

#include <algorithm>

#include "text/unicode/unicode_additions.h"

namespace piton {
namespace {

std::uint8_t category_flags(int category) {
  const auto mask = static_cast<std::uint32_t>(U_MASK(category));
  std::uint8_t flags = 0;
  if (mask & U_GC_L_MASK) flags |= CharacterTable::kLetter;
  if (mask & (U_GC_LU_MASK | U_GC_LT_MASK)) flags |= CharacterTable::kUpper;
  if (mask & U_GC_LL_MASK) flags |= CharacterTable::kLower;
  if (mask & U_GC_N_MASK) flags |= CharacterTable::kNumber;
  if (mask & U_GC_M_MASK) flags |= CharacterTable::kMark;
  if (mask & U_GC_P_MASK) flags |= CharacterTable::kPunctuation;
  if (mask & U_GC_S_MASK) flags |= CharacterTable::kSymbol;
  return flags;
}

// Unicode version of the tables that other implementations of BERT use.
constexpr int kBertVersion = 8;

}  // namespace

CharacterTable::CharacterTable() : flags_(0x110001, 0) {
  // ICU reports ranges of one category, a few thousand in all.
  const auto fill = [](const void* context, UChar32 start, UChar32 limit,
                       UCharCategory category) -> UBool {
    auto* flags = static_cast<std::uint8_t*>(const_cast<void*>(context));
    std::fill(flags + start, flags + limit, category_flags(category));
    return true;
  };
  u_enumCharTypes(fill, flags_.data());
  for (const CharacterRange& range : additions::kRanges) {
    std::fill(flags_.begin() + range.first, flags_.begin() + range.last + 1, range.flags);
  }
  for (char32_t c = 0; c <= 0x3000; ++c) {
    if (is_white_space(c)) flags_[c] |= kSpace;
  }
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word_character(char32_t c) {
  if (c >= 0x110000) return false;
  const auto point = static_cast<UChar32>(c);
  const auto mask = U_GET_GC_MASK(point);
  if (u_hasBinaryProperty(point, UCHAR_ALPHABETIC) ||
      (mask & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 || c == 0x200C || c == 0x200D) {
    return true;
  }
  for (const CharacterRange& range : additions::kRanges) {
    if (c >= range.first && c <= range.last) {
      return (range.flags &
              (CharacterTable::kLetter | CharacterTable::kMark | CharacterTable::kNumber)) != 0;
    }
  }
  return false;
}

bool is_numeric(char32_t c) {
  if (c >= 0x110000) return false;
  if ((U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_N_MASK) != 0) return true;
  return std::any_of(std::begin(additions::kDigits), std::end(additions::kDigits),
                     [c](const CharacterRange& r) { return c >= r.first && c <= r.last; });
}

std::uint32_t categories_in_unicode(char32_t c, int version) {
  if (c >= 0x110000) return U_GC_CN_MASK;
  switch (c) {  // characters that changed category, by the version of the change
    case 0x1885:
    case 0x1886:
      if (version < 9) return U_GC_LO_MASK;
      break;
    case 0xA9BD:
      if (version < 11) return U_GC_MC_MASK;
      break;
    case 0x111C9:
      if (version < 11) return U_GC_PO_MASK;
      break;
    case 0x166D:
      if (version < 12) return U_GC_PO_MASK;
      break;
    case 0x1CF2:
    case 0x1CF3:
      if (version < 12) return U_GC_MC_MASK;
      break;
    case 0x1734:
      if (version < 14) return U_GC_MN_MASK;
      break;
    default:
      break;
  }
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] <= version ? U_GET_GC_MASK(static_cast<UChar32>(c)) : U_GC_CN_MASK;
}

bool is_bert_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126);
  }
  return (categories_in_unicode(c, kBertVersion) & U_GC_P_MASK) != 0;
}

bool is_bert_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  if (c < 0x80) return c < 32 || c == 127;
  return (categories_in_unicode(c, kBertVersion) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK)) !=
         0;
}

bool is_bert_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void append_lower_case(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    return;
  }
  if (c == 0x130) {  // the only character whose lower case is two: i and a dot above
    append_utf8('i', out);
    append_utf8(0x307, out);
    return;
  }
  auto lower = static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
  if (lower == c) {
    for (const additions::CaseRange& range : additions::kLowerCase) {
      if (c >= range.first && c <= range.last) lower = range.lower + (c - range.first);
    }
  }
  append_utf8(lower, out);
}

}  // namespace piton
