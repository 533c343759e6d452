// Text without the white space around it.
#pragma once

#include <string_view>

namespace piton {

// A part of `text`, without blanks, tabs and ends of lines at either end.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace piton
