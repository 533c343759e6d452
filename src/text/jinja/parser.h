// Tokens to a syntax tree.
#pragma once

#include <string_view>

#include "text/jinja/lexer.h"
#include "text/jinja/syntax.h"

namespace piton::jinja {

// Throws SyntaxFailure for a source that is not a template, and for what is not supported: extends,
// block, include, import, autoescape, recursive loops.
Syntax parse(std::string_view source);

}  // namespace piton::jinja
