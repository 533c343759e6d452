// Removal of white space around a text.
#pragma once

#include <string_view>

namespace piton {

// `text` without blanks, tabs and line ends at both ends; a view of the same memory.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace piton
