#include "text/unicode/byte_level.h"

#include "text/unicode/utf8.h"

namespace piton {

ByteAlphabet::ByteAlphabet() {
  byte_.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const char32_t c = itself ? static_cast<char32_t>(byte) : next++;
    append_utf8(c, spelling_[byte]);
    byte_[c] = static_cast<std::int16_t>(byte);
  }
}

std::string ByteAlphabet::spell(std::string_view bytes) const {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) text += spelling_[static_cast<unsigned char>(byte)];
  return text;
}

std::optional<std::string> ByteAlphabet::bytes(std::string_view text) const {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.value >= byte_.size() || byte_[c.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_[c.value]));
    at += c.length;
  }
  return bytes;
}

}  // namespace piton
