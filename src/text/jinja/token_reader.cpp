#include "text/jinja/token_reader.h"

#include <fmt/format.h>

namespace piton::jinja {

using Type = Lexeme::Type;

std::string TokenReader::shown(const Lexeme& token) {
  switch (token.type) {
    case Type::kData:
      return "text";
    case Type::kBlockBegin:
      return "{%";
    case Type::kBlockEnd:
      return "%}";
    case Type::kVariableBegin:
      return "{{";
    case Type::kVariableEnd:
      return "}}";
    case Type::kEnd:
      return "the end of the template";
    default:
      return token.text;
  }
}

void TokenReader::fail(const std::string& message) const {
  throw SyntaxFailure{message, current().line};
}

bool TokenReader::at_operator(std::string_view text) const {
  return current().type == Type::kOperator && current().text == text;
}

bool TokenReader::at_keyword(std::string_view name) const {
  return current().type == Type::kName && current().text == name;
}

Lexeme TokenReader::take() {
  Lexeme token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenReader::skip_operator(std::string_view text) {
  const bool found = at_operator(text);
  if (found) take();
  return found;
}

bool TokenReader::skip_keyword(std::string_view name) {
  const bool found = at_keyword(name);
  if (found) take();
  return found;
}

void TokenReader::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail(fmt::format("got \"{}\", wanted \"{}\"", shown(current()), text));
}

void TokenReader::expect(Type type) {
  if (current().type != type) {
    fail(fmt::format("got \"{}\", wanted \"{}\"", shown(current()), shown({.type = type})));
  }
  take();
}

std::string TokenReader::parse_name() {
  if (current().type != Type::kName) {
    fail(fmt::format("got \"{}\", wanted a name", shown(current())));
  }
  return take().text;
}

}  // namespace piton::jinja
