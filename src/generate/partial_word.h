// A word that a text may be in the middle of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace piton {

// Bytes at the end of `text` that may begin `word`; fewer than all of it.
inline std::size_t beginning_of(std::string_view text, std::string_view word) {
  for (std::size_t length = std::min(word.size() - 1, text.size()); length > 0; --length) {
    if (text.ends_with(word.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace piton
