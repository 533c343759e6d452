// Regular expressions as grammars: what JSON Schema's `pattern` and regular constraints use.
//
// Characters, `.`, classes ([a-z], [^...], \d \w \s and their negations), groups (also (?:...) and
// named ones), alternatives, * + ? {n} {n,} {n,m} (lazy forms allow the same texts), escapes
// (\n \t \r \f \v \0 \xHH \uHHHH \u{H...}), ^ at the beginning and $ at the end of an alternative
// of the whole. \d and \w are ASCII; \D and \W are ASCII too, so that every reader agrees with the
// result. References and look-around are refused: they are not regular.
#pragma once

#include <string_view>

#include "generate/constraints/byte_grammar.h"
#include "generate/constraints/characters.h"

namespace piton {

struct RegexOptions {
  bool anywhere = false;  // the expression is found in the text (JSON Schema); else it is the text
  TextForm form = TextForm::kPlain;
};

// The texts that match `pattern` (UTF-8). Throws Error(kUsage), beginning with `where`, with the
// character at which it is malformed or not supported.
GrammarBuilder::Part regular_expression(GrammarBuilder& grammar, std::string_view pattern,
                                        RegexOptions options, std::string_view where);

}  // namespace piton
