// Removal of white space around a text.
#pragma once

#include <string_view>

namespace piton {

// Blanks, tabs and line ends.
inline constexpr std::string_view kWhiteSpace = " \t\r\n";

// `text` without white space at both ends; a view of the same memory.
inline std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kWhiteSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1);
}

}  // namespace piton
