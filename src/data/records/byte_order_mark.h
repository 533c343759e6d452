// The mark that some editors write before a text in UTF-8. It is no part of the text.
#pragma once

#include <cstddef>
#include <string_view>

namespace piton {

// The bytes that a byte order mark takes at the beginning of `text`; 0: there is none.
inline std::size_t byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? kMark.size() : 0;
}

}  // namespace piton
