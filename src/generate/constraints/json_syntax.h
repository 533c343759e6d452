// The parts of JSON as grammars: white space, strings, values of any kind.
#pragma once

#include <optional>

#include "generate/constraints/byte_grammar.h"

namespace piton {

class JsonSyntax {
 public:
  using Part = GrammarBuilder::Part;

  explicit JsonSyntax(GrammarBuilder& grammar) : grammar_(grammar) {}

  Part space();  // nothing, a blank, or a line break and at most 16 blanks
  // A string of `least` to `most` characters; as an escape counts the character that it means.
  Part string(std::int64_t least, std::optional<std::int64_t> most);
  // `content`: what is between the quotes.
  Part quoted(Part content);
  Part member(Part key, Part value);
  // `first` is the list (or members) from its first element on; brackets and space are added.
  Part enclosed(char open, Part content, char close);
  Part comma();  // with space

  Part any_value();
  Part any_object();
  Part any_array();

 private:
  Part byte(char c);
  Part character();

  GrammarBuilder& grammar_;
  std::optional<GrammarBuilder::Rule> space_;
  std::optional<GrammarBuilder::Rule> character_;
  std::optional<GrammarBuilder::Rule> value_;
};

}  // namespace piton
