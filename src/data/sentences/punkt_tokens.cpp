#include "data/sentences/punkt_tokens.h"

#include <unicode/uchar.h>
#include <unicode/ustring.h>

#include <algorithm>

#include "base/error.h"

namespace piton::punkt {
namespace {

// Python's \w without \d: letters, "_", and numeric characters that are not decimal digits.
bool is_word_not_digit(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  const auto point = static_cast<UChar32>(c);
  if ((U_MASK(u_charType(point)) & U_GC_L_MASK) != 0) return true;
  return u_charType(point) != U_DECIMAL_DIGIT_NUMBER &&
         u_getNumericValue(point) != U_NO_NUMERIC_VALUE;
}

bool is_digit(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return u_charType(static_cast<UChar32>(c)) == U_DECIMAL_DIGIT_NUMBER;
}

bool starts_word(char32_t c) {
  return std::u32string_view(U"(\"`{[:;&#*@)}]-,").find(c) == std::u32string_view::npos;
}

// Length of "--..", ".." or ". . ." at `at`; 0 if there is none.
std::size_t multi_punctuation(std::u32string_view text, std::size_t at) {
  const char32_t c = text[at];
  if (c != '-' && c != '.') return 0;
  std::size_t run = at;
  while (run < text.size() && text[run] == c) ++run;
  if (run - at >= 2) return run - at;
  if (c == '-') return 0;
  std::size_t pairs = 0, end = at;
  while (end + 1 < text.size() && text[end] == '.' && is_space(text[end + 1])) {
    ++pairs;
    end += 2;
  }
  if (end < text.size() && text[end] == '.') return pairs >= 2 ? end + 1 - at : 0;
  // The match ends with a period: that of the last pair.
  return pairs >= 3 ? end - 1 - at : 0;
}

bool ends_word(std::u32string_view text, std::size_t at) {
  if (at >= text.size()) return true;
  const char32_t c = text[at];
  if (is_space(c) || is_non_word(c) || multi_punctuation(text, at) > 0) return true;
  if (c != ',') return false;
  return at + 1 >= text.size() || is_space(text[at + 1]) || is_non_word(text[at + 1]) ||
         multi_punctuation(text, at + 1) > 0;
}

bool is_number_type(std::u32string_view lower) {
  std::size_t at = 0;
  if (at < lower.size() && lower[at] == '-') ++at;
  if (at < lower.size() && (lower[at] == '.' || lower[at] == ',')) ++at;
  if (at >= lower.size() || !is_digit(lower[at])) return false;
  return std::all_of(lower.begin() + static_cast<std::ptrdiff_t>(at), lower.end(),
                     [](char32_t c) { return is_digit(c) || c == ',' || c == '.' || c == '-'; });
}

Token make_token(std::u32string_view text) {
  Token token;
  token.text = text;
  token.type = is_number_type(text) ? "##number##" : lower_utf8(text);
  token.period_final = text.back() == '.';
  return token;
}

void tokenize_line(std::u32string_view line, std::vector<Token>& tokens) {
  for (std::size_t at = 0; at < line.size();) {
    if (is_space(line[at])) {
      ++at;
      continue;
    }
    std::size_t size = multi_punctuation(line, at);
    if (size == 0) {
      size = 1;
      if (starts_word(line[at])) {
        while (!is_space(line[at + size - 1]) && !ends_word(line, at + size)) ++size;
      }
    }
    tokens.push_back(make_token(line.substr(at, size)));
    at += size;
  }
}

}  // namespace

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_sentence_end(char32_t c) { return c == '.' || c == '?' || c == '!'; }

bool is_non_word(char32_t c) {
  return std::u32string_view(U")\";}]*:@'({[\u2018\u2019\u201c\u201d\u00ab\u00bb?!").find(c) !=
         std::u32string_view::npos;
}

bool is_closing(char32_t c) {
  return std::u32string_view(U"\"')]}\u2018\u2019\u201c\u201d\u00ab\u00bb").find(c) !=
         std::u32string_view::npos;
}

std::string_view Token::type_no_period() const {
  std::string_view view = type;
  if (view.size() > 1 && view.ends_with('.')) view.remove_suffix(1);
  return view;
}

bool Token::first_upper() const {
  return u_hasBinaryProperty(static_cast<UChar32>(text[0]), UCHAR_UPPERCASE) != 0;
}
bool Token::first_lower() const {
  return u_hasBinaryProperty(static_cast<UChar32>(text[0]), UCHAR_LOWERCASE) != 0;
}
bool Token::is_initial() const {
  return text.size() == 2 && text[1] == '.' && is_word_not_digit(text[0]);
}
bool Token::is_alpha() const { return std::all_of(text.begin(), text.end(), is_word_not_digit); }
bool Token::is_non_punctuation() const { return has_word_character(type); }

void tokenize(std::u32string_view text, std::vector<Token>& tokens) {
  bool paragraph = false;
  std::size_t start = 0;
  while (true) {
    const auto end = text.find(U'\n', start);
    const auto line = text.substr(start, end == std::u32string_view::npos ? end : end - start);
    if (std::any_of(line.begin(), line.end(), [](char32_t c) { return !is_space(c); })) {
      const std::size_t first = tokens.size();
      tokenize_line(line, tokens);
      tokens[first].paragraph_start = paragraph;
      tokens[first].line_start = true;
      paragraph = false;
    } else {
      paragraph = true;
    }
    if (end == std::u32string_view::npos) return;
    start = end + 1;
  }
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) {
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xC0 | (c >> 6));
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      out += static_cast<char>(0xE0 | (c >> 12));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
      out += static_cast<char>(0xF0 | (c >> 18));
      out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return out;
}

std::string lower_utf8(std::u32string_view text) {
  if (std::all_of(text.begin(), text.end(), [](char32_t c) { return c < 0x80; })) {
    std::string out;
    for (const char32_t c : text) out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return out;
  }
  // Whole-string mapping: a final sigma and the dotted I depend on their neighbors.
  std::u16string wide;
  for (const char32_t c : text) {
    if (c < 0x10000) {
      wide += static_cast<char16_t>(c);
    } else {
      wide += static_cast<char16_t>(0xD7C0 + (c >> 10));
      wide += static_cast<char16_t>(0xDC00 + (c & 0x3FF));
    }
  }
  std::u16string lower(wide.size() * 3 + 1, u'\0');
  UErrorCode code = U_ZERO_ERROR;
  const int32_t size = u_strToLower(lower.data(), static_cast<int32_t>(lower.size()), wide.data(),
                                    static_cast<int32_t>(wide.size()), "", &code);
  PITON_ASSERT(U_SUCCESS(code) != 0, "u_strToLower: {}", u_errorName(code));
  std::u32string points;
  for (int32_t i = 0; i < size; ++i) {
    const char16_t c = lower[static_cast<std::size_t>(i)];
    if (c >= 0xD800 && c < 0xDC00 && i + 1 < size) {
      const char16_t next = lower[static_cast<std::size_t>(++i)];
      points += (static_cast<char32_t>(c - 0xD7C0) << 10) + (next & 0x3FF);
    } else {
      points += c;
    }
  }
  return to_utf8(points);
}

void decode_utf8(std::string_view text, std::u32string& points,
                 std::vector<std::uint32_t>* offsets) {
  points.clear();
  if (offsets != nullptr) offsets->clear();
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t k) {
      return k < text.size() ? static_cast<char32_t>(static_cast<unsigned char>(text[k])) : U'\0';
    };
    if (offsets != nullptr) offsets->push_back(static_cast<std::uint32_t>(i));
    const char32_t c = byte(i);
    if (c < 0x80) {
      points += c;
      i += 1;
    } else if (c < 0xE0) {
      points += ((c & 0x1F) << 6) | (byte(i + 1) & 0x3F);
      i += 2;
    } else if (c < 0xF0) {
      points += ((c & 0x0F) << 12) | ((byte(i + 1) & 0x3F) << 6) | (byte(i + 2) & 0x3F);
      i += 3;
    } else {
      points += ((c & 0x07) << 18) | ((byte(i + 1) & 0x3F) << 12) | ((byte(i + 2) & 0x3F) << 6) |
                (byte(i + 3) & 0x3F);
      i += 4;
    }
  }
  if (offsets != nullptr) offsets->push_back(static_cast<std::uint32_t>(text.size()));
}

bool has_word_character(std::string_view type) {
  std::u32string points;
  decode_utf8(type, points, nullptr);
  return std::any_of(points.begin(), points.end(), is_word_not_digit);
}

std::size_t length_in_points(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace piton::punkt
