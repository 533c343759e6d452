// Names in messages: the first few of a list, and how many more there are.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace piton {

// "a, b, c and 12 more".
inline std::string listed(const std::vector<std::string>& names, std::size_t most = 6) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(names.size(), most));
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + count, ", "));
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

}  // namespace piton
