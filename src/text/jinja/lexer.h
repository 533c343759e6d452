// The source of a template as tokens.
//
// Rules of Jinja with trim_blocks and lstrip_blocks on: the line end after a block or comment is
// removed, and so are blanks before a block or comment that begins a line; "-" next to a delimiter
// removes all white space on that side, "+" keeps it. Line ends are written "\n", and one at the
// end of the source is dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace piton::jinja {

struct Lexeme {
  enum class Type {
    kData,           // text between tags
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kName,
    kText,  // a literal, unescaped
    kInteger,
    kReal,
    kOperator,
    kEnd,
  };
  Type type = Type::kEnd;
  std::string text;
  std::int64_t integer = 0;
  double real = 0;
  int line = 1;
};

// A source that is not a template. `line` counts from 1.
struct SyntaxFailure {
  std::string message;
  int line = 1;
};

// The tokens of `source`, which is well-formed UTF-8; the last one is kEnd. Throws SyntaxFailure.
std::vector<Lexeme> tokens_of(std::string_view source);

}  // namespace piton::jinja
