// Reads the tokens of a template one after another.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/lexer.h"

namespace piton::jinja {

class TokenReader {
 public:
  explicit TokenReader(std::vector<Lexeme> tokens) : tokens_(std::move(tokens)) {}

 protected:
  const Lexeme& current() const { return tokens_[at_]; }
  const Lexeme& next_token() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool at_operator(std::string_view text) const;
  bool at_keyword(std::string_view name) const;
  // True if it was there, and is passed then.
  bool skip_operator(std::string_view text);
  bool skip_keyword(std::string_view name);
  // Throw SyntaxFailure if it is not there.
  void expect_operator(std::string_view text);
  void expect(Lexeme::Type type);
  std::string parse_name();
  // The current token, which is passed. The last one stays.
  Lexeme take();
  [[noreturn]] void fail(const std::string& message) const;
  // As messages name it.
  static std::string shown(const Lexeme& token);

 private:
  std::vector<Lexeme> tokens_;
  std::size_t at_ = 0;
};

}  // namespace piton::jinja
