#include "base/nesting.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace piton {
namespace {

[[noreturn]] void refuse(Fault fault, std::string_view text, std::size_t at,
                         const std::string& where) {
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  throw Error(fault, "{}:{}: nested too deeply: got more than {} levels; is it the right file?",
              where, line, kMostLevels);
}

// The index after the end of the JSON string whose opening quote is at `at`.
std::size_t end_of_json_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// The same for TOML, where strings are in ' or ", in ''' or """ over several lines, and \ has no
// special meaning inside '.
std::size_t end_of_toml_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const bool escapes = quote == '"';
  const std::string three(3, quote);
  if (text.substr(at, 3) == three) {
    for (at += 3; at < text.size() && text.substr(at, 3) != three; ++at) {
      if (escapes && text[at] == '\\') ++at;
    }
    return std::min(at + 3, text.size());
  }
  for (++at; at < text.size() && text[at] != quote && text[at] != '\n'; ++at) {
    if (escapes && text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

}  // namespace

void check_json_depth(std::string_view text, const std::string& where) {
  int depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"') {
      at = end_of_json_string(text, at);
      continue;
    }
    if (c == '{' || c == '[') {
      if (++depth > kMostLevels) refuse(Fault::kData, text, at, where);
    } else if (c == '}' || c == ']') {
      --depth;
    }
    ++at;
  }
}

void check_toml_depth(std::string_view text, const std::string& where) {
  // Dots are counted from the last comma or line end on this level, so a list of decimal numbers
  // counts as one level.
  std::vector<int> outer;  // for each open bracket, the levels outside of it
  int levels = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = end_of_toml_string(text, at);
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '[' || c == '{') {
      outer.push_back(levels++);
    } else if ((c == ']' || c == '}') && !outer.empty()) {
      levels = outer.back();
      outer.pop_back();
    } else if (c == '.') {
      ++levels;
    } else if (c == ',' && !outer.empty()) {
      levels = outer.back() + 1;
    } else if (c == '\n' && outer.empty()) {
      levels = 0;
    }
    if (levels > kMostLevels) refuse(Fault::kUsage, text, at, where);
    ++at;
  }
}

}  // namespace piton
