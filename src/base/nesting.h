// Checks the nesting depth of a text before it is parsed.
//
// Parsers build trees, and code that walks, copies, prints or frees a tree recurses once per level:
// a file of 100,000 brackets would overflow the stack. No file that Piton reads needs more than a
// few levels.
#pragma once

#include <string>
#include <string_view>

namespace piton {

inline constexpr int kMostLevels = 64;

// JSON: nested objects and lists. Text that is not JSON is left to the parser. Throws Error(kData)
// naming `where` and the line.
void check_json_depth(std::string_view text, const std::string& where);

// TOML: lists, inline tables, and the parts of dotted keys and headers (a.b.c = 1 makes two
// tables). Throws Error(kUsage) naming `where` and the line.
void check_toml_depth(std::string_view text, const std::string& where);

}  // namespace piton
