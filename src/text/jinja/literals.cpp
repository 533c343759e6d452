#include "text/jinja/literals.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <optional>

#include "text/unicode/utf8.h"

namespace piton::jinja {
namespace {

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

// Digits with single "_" between them, from `at`; the end.
template <typename IsDigit>
std::size_t digits_end(std::string_view text, std::size_t at, const IsDigit& is_digit) {
  std::size_t end = at;
  while (end < text.size()) {
    if (is_digit(text[end])) {
      ++end;
    } else if (text[end] == '_' && end > at && end + 1 < text.size() && is_digit(text[end + 1])) {
      end += 2;
    } else {
      break;
    }
  }
  return end;
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out.push_back(c);
  }
  return out;
}

// Sets size 0 if the digits are too many.
void set_integer(std::string_view digits, int base, Number& number) {
  const std::string plain = without_underscores(digits);
  const auto [end, error] =
      std::from_chars(plain.data(), plain.data() + plain.size(), number.integer, base);
  if (error != std::errc{}) number.size = 0;
}

Number integer_at(std::string_view text) {
  Number number;
  const char kind = text.size() > 2 && text[0] == '0'
                        ? static_cast<char>(std::tolower(static_cast<unsigned char>(text[1])))
                        : '\0';
  const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  if (base != 10) {
    const auto is_digit = [base](char c) {
      const int value = is_ascii_digit(c)      ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : 99;
      return value < base;
    };
    const std::size_t begin = text[2] == '_' ? 3 : 2;
    number.size = digits_end(text, begin, is_digit);
    if (number.size > begin) {
      set_integer(text.substr(begin, number.size - begin), base, number);
      return number;
    }
  }
  // "0" is followed by zeros alone: 01 is two numbers.
  number.size = text[0] == '0' ? digits_end(text, 0, [](char c) { return c == '0'; })
                               : digits_end(text, 0, is_ascii_digit);
  set_integer(text.substr(0, number.size), 10, number);
  return number;
}

// "\N{...}" and surrogates are not supported.
std::optional<char32_t> hex_escape(std::string_view digits, std::size_t wanted) {
  if (digits.size() < wanted) return std::nullopt;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + wanted, value, 16);
  if (error != std::errc{} || end != digits.data() + wanted) return std::nullopt;
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return std::nullopt;
  return value;
}

}  // namespace

Number number_at(std::string_view text, bool after_dot) {
  if (!after_dot) {
    const std::size_t whole = digits_end(text, 0, is_ascii_digit);
    std::size_t end = whole;
    if (end + 1 < text.size() && text[end] == '.' && is_ascii_digit(text[end + 1])) {
      end = digits_end(text, end + 1, is_ascii_digit);
    }
    if (end + 1 < text.size() && (text[end] == 'e' || text[end] == 'E')) {
      const std::size_t first = end + (text[end + 1] == '+' || text[end + 1] == '-' ? 2 : 1);
      if (first < text.size() && is_ascii_digit(text[first])) {
        end = digits_end(text, first, is_ascii_digit);
      }
    }
    if (end > whole) {
      Number number{.size = end, .is_real = true};
      number.real = std::strtod(without_underscores(text.substr(0, end)).c_str(), nullptr);
      return number;
    }
  }
  return integer_at(text);
}

std::string unescaped(std::string_view text, std::string& error) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '\\') {
      out.push_back(text[at++]);
      continue;
    }
    const char c = text[at + 1];  // a literal does not end with a single backslash
    at += 2;
    constexpr std::string_view kNames = "abfnrtv\\'\"";
    constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t which = kNames.find(c); which != kNames.npos) {
      out.push_back(kValues[which]);
    } else if (c == '\n') {
      continue;
    } else if (c >= '0' && c <= '7') {
      std::uint32_t value = static_cast<std::uint32_t>(c - '0');
      for (int i = 0; i < 2 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i) {
        value = value * 8 + static_cast<std::uint32_t>(text[at++] - '0');
      }
      append_utf8(value, out);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const auto value = hex_escape(text.substr(at), digits);
      if (!value) {
        error = fmt::format("\"\\{}\" in a string: wanted {} hexadecimal digits of a character", c,
                            digits);
        return out;
      }
      append_utf8(*value, out);
      at += digits;
    } else if (c == 'N') {
      error = "\"\\N{...}\" in a string is not supported; write the character itself";
      return out;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      // Python's codec has turned the character into \xe9 or \u4e2d before it reads escapes, and
      // reads this as an escaped backslash.
      const Utf8Char character = decode_utf8(text, at - 1);
      const auto value = static_cast<std::uint32_t>(character.value);
      out += value < 0x100     ? fmt::format("\\x{:02x}", value)
             : value < 0x10000 ? fmt::format("\\u{:04x}", value)
                               : fmt::format("\\U{:08x}", value);
      at += character.length - 1;
    } else {
      out.push_back('\\');
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace piton::jinja
