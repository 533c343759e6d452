// Literals of templates: numbers and strings as Python writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace piton::jinja {

struct Number {
  std::size_t size = 0;  // bytes; 0 if an integer does not fit
  bool is_real = false;
  std::int64_t integer = 0;
  double real = 0;
};

// The number that `text` begins with; its first character is a digit. `after_dot`: a dot is before
// it (items.0.1), so it has no fraction.
Number number_at(std::string_view text, bool after_dot);

// The contents of a string literal, escapes (\n, \x41, \u4e2d, \101) replaced. Sets `error` if an
// escape is cut off or not a character.
std::string unescaped(std::string_view text, std::string& error);

}  // namespace piton::jinja
