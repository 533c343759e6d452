#include "text/unicode/utf8.h"

#include <cstring>

namespace piton {
namespace {

// Bytes of the maximal ill-formed part at `text`: the lead byte and the following bytes that could
// still have become a character.
std::size_t bad_part(const char* text, const char* end) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0xC2 || lead > 0xF4) return 1;
  const std::ptrdiff_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  std::ptrdiff_t part = 1;
  while (part < length && part < end - text) {
    const auto byte = static_cast<unsigned char>(text[part]);
    if (byte < low || byte > high) break;
    low = 0x80;
    high = 0xBF;
    ++part;
  }
  return static_cast<std::size_t>(part);
}

}  // namespace

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
  std::string out(text.size() * 3, '\0');  // a bad byte becomes three
  char* to = out.data();
  const char* from = text.data();
  const char* const end = from + text.size();
  while (from < end) {
    const Utf8Char c = decode_utf8(from, end);
    if (c.value != kBadByte) {
      for (std::size_t i = 0; i < c.length; ++i) *to++ = *from++;
      continue;
    }
    to = put_utf8(0xFFFD, to);
    from += bad_part(from, end);
  }
  out.resize(static_cast<std::size_t>(to - out.data()));
  return out;
}

}  // namespace piton
