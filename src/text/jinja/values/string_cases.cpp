// Cases and classes of characters, with the tables of ICU.
#include <unicode/ucasemap.h>
#include <unicode/uchar.h>
#include <unicode/ustring.h>

#include <array>
#include <memory>

#include "base/error.h"
#include "text/jinja/values/strings.h"
#include "text/unicode/utf8.h"

namespace piton::jinja {
namespace {

using CaseMapper = std::int32_t (*)(const UCaseMap*, char*, std::int32_t, const char*, std::int32_t,
                                    UErrorCode*);

// Full mapping, without the rules of any language.
std::string mapped(std::string_view text, CaseMapper mapper) {
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<UCaseMap, void (*)(UCaseMap*)> map(ucasemap_open("", 0, &error),
                                                           ucasemap_close);
  PITON_ASSERT(U_SUCCESS(error));
  // The longest mapping makes three characters of one.
  std::string out(text.size() * 3 + 16, '\0');
  const std::int32_t size = mapper(map.get(), out.data(), static_cast<std::int32_t>(out.size()),
                                   text.data(), static_cast<std::int32_t>(text.size()), &error);
  PITON_ASSERT(U_SUCCESS(error));
  out.resize(static_cast<std::size_t>(size));
  return out;
}

bool is_cased(char32_t c) { return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED); }

bool is_upper(char32_t c) { return u_isUUppercase(static_cast<UChar32>(c)) != 0; }

bool is_lower(char32_t c) { return u_isULowercase(static_cast<UChar32>(c)) != 0; }

// The title case of one character: "Ss" of a sharp s.
std::string title_of(std::string_view character) {
  const char32_t value = decode_utf8(character, 0).value;
  if (value < 0x80) return upper(character);
  const auto point = static_cast<UChar32>(value);
  std::array<UChar, 4> source{};
  std::int32_t size = 0;
  U16_APPEND_UNSAFE(source.data(), size, point);
  std::array<UChar, 16> titled{};
  UErrorCode error = U_ZERO_ERROR;
  const std::int32_t titled_size =
      u_strToTitle(titled.data(), titled.size(), source.data(), size, nullptr, "", &error);
  PITON_ASSERT(U_SUCCESS(error));
  std::string out(64, '\0');
  std::int32_t out_size = 0;
  u_strToUTF8(out.data(), static_cast<std::int32_t>(out.size()), &out_size, titled.data(),
              titled_size, &error);
  PITON_ASSERT(U_SUCCESS(error));
  out.resize(static_cast<std::size_t>(out_size));
  return out;
}

int numeric_type(char32_t c) {
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
}

bool is_decimal(char32_t c) { return numeric_type(c) == U_NT_DECIMAL; }

bool is_digit(char32_t c) { return is_decimal(c) || numeric_type(c) == U_NT_DIGIT; }

bool is_any_number(char32_t c) { return numeric_type(c) != U_NT_NONE; }

bool is_letter(char32_t c) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_L_MASK) != 0; }

template <typename Test>
bool all_are(std::string_view text, const Test& test) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!test(c.value)) return false;
    at += c.length;
  }
  return true;
}

// All cased characters have the case, and there is one.
bool has_case(std::string_view text, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool any = false;
  return all_are(text,
                 [&](char32_t c) {
                   any = any || wanted(c);
                   const auto type = u_charType(static_cast<UChar32>(c));
                   return !other(c) && type != U_TITLECASE_LETTER;
                 }) &&
         any;
}

// Upper case at the beginning of words, lower case inside.
bool is_title(std::string_view text) {
  bool inside = false;
  bool any = false;
  return all_are(text,
                 [&](char32_t c) {
                   if (is_upper(c) || u_charType(static_cast<UChar32>(c)) == U_TITLECASE_LETTER) {
                     if (inside) return false;
                     inside = any = true;
                   } else if (is_lower(c)) {
                     if (!inside) return false;
                     any = true;
                   } else {
                     inside = false;
                   }
                   return true;
                 }) &&
         any;
}

}  // namespace

std::string upper(std::string_view text) { return mapped(text, ucasemap_utf8ToUpper); }

std::string lower(std::string_view text) { return mapped(text, ucasemap_utf8ToLower); }

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  for (const std::string_view c : characters(text)) {
    out += inside ? lower(c) : title_of(c);
    inside = is_cased(decode_utf8(c, 0).value);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const std::size_t first = decode_utf8(text, 0).length;
  return title_of(text.substr(0, first)) + lower(text.substr(first));
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (const std::string_view c : characters(text)) {
    const char32_t value = decode_utf8(c, 0).value;
    out += is_upper(value) ? lower(c) : is_lower(value) ? upper(c) : std::string(c);
  }
  return out;
}

std::optional<bool> is_class(std::string_view name, std::string_view text) {
  const auto all = [&](bool (*test)(char32_t)) { return !text.empty() && all_are(text, test); };
  if (name == "isalpha") return all(is_letter);
  if (name == "isdecimal") return all(is_decimal);
  if (name == "isdigit") return all(is_digit);
  if (name == "isnumeric") return all(is_any_number);
  if (name == "isalnum") return all([](char32_t c) { return is_letter(c) || is_any_number(c); });
  if (name == "isspace") return all(is_space);
  if (name == "isupper") return has_case(text, is_upper, is_lower);
  if (name == "islower") return has_case(text, is_lower, is_upper);
  if (name == "istitle") return is_title(text);
  if (name == "isascii") return ascii_end(text, 0) == text.size();
  if (name == "isprintable") return all_are(text, is_printable);
  return std::nullopt;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & (U_GC_C_MASK | U_GC_Z_MASK)) == 0;
}

}  // namespace piton::jinja
