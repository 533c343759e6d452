#include "base/numbers_in_name.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace piton {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<std::vector<int>> numbers_in_name(std::string_view name, std::string_view form) {
  std::vector<int> numbers;
  while (!form.empty()) {
    if (form.front() != '{') {
      if (name.empty() || name.front() != form.front()) return std::nullopt;
      name.remove_prefix(1);
      form.remove_prefix(1);
      continue;
    }
    PITON_ASSERT(form.size() >= 5 && is_digit(form[1]) && form[2] == ',' && is_digit(form[3]) &&
                     form[4] == '}',
                 "no form of names: {}", form);
    const std::ptrdiff_t least = form[1] - '0';
    const std::ptrdiff_t most = form[3] - '0';
    form.remove_prefix(5);
    const auto* const end = std::find_if_not(name.begin(), name.end(), is_digit);
    const std::ptrdiff_t digits = end - name.begin();
    if (digits < least || digits > most) return std::nullopt;
    std::from_chars(name.data(), name.data() + digits, numbers.emplace_back());
    name.remove_prefix(static_cast<std::size_t>(digits));
  }
  return name.empty() ? std::optional(std::move(numbers)) : std::nullopt;
}

}  // namespace piton
