#include "base/printable.h"

#include <fmt/format.h>

namespace piton {
namespace {

// The control characters of UTF-8 that are longer than a byte: C1 (C2 80 to C2 9F), and the
// separators of lines and paragraphs (E2 80 A8 and A9).
char32_t long_control(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.size() >= 2 && byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) < 0xA0) return byte(1);
  if (text.size() >= 3 && byte(0) == 0xE2 && byte(1) == 0x80 && (byte(2) | 1) == 0xA9) {
    return 0x2000 + (byte(2) & 0x3F);
  }
  return 0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto code = static_cast<unsigned char>(text[i]);
    if (code == '\n') {
      shown += "\\n";
    } else if (code == '\r') {
      shown += "\\r";
    } else if ((code < ' ' && code != '\t') || code == 0x7F) {
      shown += fmt::format("\\x{:02x}", code);
    } else if (const char32_t control = long_control(text.substr(i)); control != 0) {
      shown += fmt::format("\\u{:04x}", static_cast<unsigned>(control));
      i += control < 0x100 ? 1 : 2;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

}  // namespace piton
