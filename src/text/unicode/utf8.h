// UTF-8, one character at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace piton {

// Replaces a byte that is not part of a well-formed character.
inline constexpr char32_t kBadByte = 0x110000;

struct Utf8Char {
  char32_t value;      // a scalar value, or kBadByte
  std::size_t length;  // bytes; 1 for kBadByte
};

// The character at `text`, which must not be `end`. Overlong forms, surrogates and values above
// U+10FFFF are bad bytes.
inline Utf8Char decode_utf8(const char* text, const char* end) {
  const auto* p = reinterpret_cast<const unsigned char*>(text);
  const std::ptrdiff_t left = end - text;
  const char32_t lead = p[0];
  const auto tail = [p](int i) { return (p[i] & 0xC0U) == 0x80U; };
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) {
    if (lead >= 0xC2 && left >= 2 && tail(1)) return {(lead & 0x1FU) << 6 | (p[1] & 0x3FU), 2};
    return {kBadByte, 1};
  }
  if (lead < 0xF0) {
    if (left >= 3 && tail(1) && tail(2)) {
      const char32_t value = (lead & 0xFU) << 12 | (p[1] & 0x3FU) << 6 | (p[2] & 0x3FU);
      if (value >= 0x800 && (value < 0xD800 || value > 0xDFFF)) return {value, 3};
    }
    return {kBadByte, 1};
  }
  if (lead < 0xF5 && left >= 4 && tail(1) && tail(2) && tail(3)) {
    const char32_t value =
        (lead & 7U) << 18 | (p[1] & 0x3FU) << 12 | (p[2] & 0x3FU) << 6 | (p[3] & 0x3FU);
    if (value >= 0x10000 && value <= 0x10FFFF) return {value, 4};
  }
  return {kBadByte, 1};
}

inline Utf8Char decode_utf8(std::string_view text, std::size_t at) {
  return decode_utf8(text.data() + at, text.data() + text.size());
}

// The last character of `text`, which is not empty.
inline Utf8Char decode_utf8_back(std::string_view text) {
  for (std::size_t length = 2; length <= 4 && length <= text.size(); ++length) {
    const Utf8Char c = decode_utf8(text, text.size() - length);
    if (c.value != kBadByte && c.length == length) return c;
  }
  const auto last = static_cast<unsigned char>(text.back());
  return {last < 0x80 ? static_cast<char32_t>(last) : kBadByte, 1};
}

// Writes a scalar value, up to four bytes, and returns the place after it.
inline char* put_utf8(char32_t value, char* to) {
  if (value < 0x80) {
    *to++ = static_cast<char>(value);
  } else if (value < 0x800) {
    *to++ = static_cast<char>(0xC0 | value >> 6);
    *to++ = static_cast<char>(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    *to++ = static_cast<char>(0xE0 | value >> 12);
    *to++ = static_cast<char>(0x80 | (value >> 6 & 0x3F));
    *to++ = static_cast<char>(0x80 | (value & 0x3F));
  } else {
    *to++ = static_cast<char>(0xF0 | value >> 18);
    *to++ = static_cast<char>(0x80 | (value >> 12 & 0x3F));
    *to++ = static_cast<char>(0x80 | (value >> 6 & 0x3F));
    *to++ = static_cast<char>(0x80 | (value & 0x3F));
  }
  return to;
}

// Appends a scalar value.
void append_utf8(char32_t value, std::string& out);

// Length of the longest prefix that is well-formed.
std::size_t valid_utf8_prefix(std::string_view text);

// `text` with each maximal ill-formed part replaced by U+FFFD (Unicode 15, section 3.9, as browsers
// and other decoders do).
std::string replace_bad_utf8(std::string_view text);

// The first byte at or after `at` that is not ASCII, or the end.
std::size_t ascii_end(std::string_view text, std::size_t at);

}  // namespace piton
