#include "base/name_list.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace piton {

std::string name_list(const std::vector<std::string>& names, std::size_t most) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(names.size(), most));
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + count, ", "));
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

}  // namespace piton
