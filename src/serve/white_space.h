// White space in what a model writes.
#pragma once

#include <string_view>

namespace piton {

inline constexpr std::string_view kWhiteSpace = " \t\r\n";

// Without white space at both ends.
inline std::string_view stripped(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1);
}

}  // namespace piton
