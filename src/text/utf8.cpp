#include "text/utf8.h"

#include <cstring>

namespace piton {

void append_utf8(char32_t value, std::string& out) {
  char bytes[4];
  out.append(bytes, put_utf8(value, bytes));
}

std::size_t ascii_end(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    word &= 0x8080808080808080U;
    if (word != 0) return at + static_cast<std::size_t>(__builtin_ctzll(word)) / 8;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      at = ascii_end(text, at);
      continue;
    }
    const Utf8Char c = decode_utf8(text, at);
    if (c.value == kBadByte) return at;
    at += c.length;
  }
  return at;
}

std::string replace_bad_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    out.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (text.empty()) break;
    // A maximal part: the lead and as many following bytes as could still have become a character.
    const auto lead = static_cast<unsigned char>(text[0]);
    std::size_t part = 1;
    unsigned low = 0x80;
    unsigned high = 0xBF;
    std::size_t length = 1;
    if (lead >= 0xC2 && lead <= 0xDF) length = 2;
    if (lead >= 0xE0 && lead <= 0xEF) length = 3;
    if (lead >= 0xF0 && lead <= 0xF4) length = 4;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    while (part < length && part < text.size()) {
      const auto byte = static_cast<unsigned char>(text[part]);
      if (byte < low || byte > high) break;
      low = 0x80;
      high = 0xBF;
      ++part;
    }
    append_utf8(0xFFFD, out);
    text.remove_prefix(part);
  }
  return out;
}

}  // namespace piton
