#include "tasks/answers/python_text.h"

#include <unicode/uchar.h>

#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace piton {

// White_Space, and the separators U+001C to U+001F, which have the bidirectional class B or S.
bool is_python_space(char32_t c) {
  return (c >= 0x1C && c <= 0x1F) || (c != kBadByte && is_white_space(c));
}

std::string_view python_right_stripped(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char last = decode_utf8_back(text);
    if (!is_python_space(last.value)) break;
    text.remove_suffix(last.length);
  }
  return text;
}

std::string_view python_left_stripped(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char first = decode_utf8(text, 0);
    if (!is_python_space(first.value)) break;
    text.remove_prefix(first.length);
  }
  return text;
}

std::string_view python_stripped(std::string_view text) {
  return python_left_stripped(python_right_stripped(text));
}

std::string python_capitalized(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.value == kBadByte) {
      out += text[at];
    } else if (at == 0) {
      append_utf8(static_cast<char32_t>(u_totitle(static_cast<UChar32>(c.value))), out);
    } else {
      append_lower_case(c.value, out);
    }
    at += c.length;
  }
  return out;
}

std::string python_lower(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    append_lower_case(c.value, out);
    at += c.length;
  }
  return out;
}

std::int64_t python_length(std::string_view text) {
  std::int64_t length = 0;
  for (std::size_t at = 0; at < text.size(); at += decode_utf8(text, at).length) ++length;
  return length;
}

std::int64_t python_word_count(std::string_view text) {
  std::int64_t runs = 0;
  bool in_run = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const bool space = is_python_space(c.value);
    if (space && !in_run) ++runs;
    in_run = space;
    at += c.length;
  }
  return runs + 1;
}

std::string python_replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t found = text.find(from); found != text.npos; found = text.find(from, at)) {
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

}  // namespace piton
