#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "text/jinja/literals.h"
#include "text/jinja/values/strings.h"
#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace piton::jinja {
namespace {

using Type = Lexeme::Type;

// Longer ones first.
constexpr auto kOperators = std::to_array<std::string_view>(
    {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
     "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"});

std::string with_plain_line_ends(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out.push_back('\n');
    } else {
      out.push_back(source[i]);
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_line_ends(source)) {}

  std::vector<Lexeme> run() {
    while (at_ < source_.size()) read_text();
    add(Type::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // Text up to the next tag, and the tag.
  void read_text() {
    const std::string_view rest = std::string_view(source_).substr(at_);
    std::size_t size = 0;
    while (true) {
      size = rest.find('{', size);
      if (size == rest.npos || size + 1 == rest.size()) {
        add_data(rest);
        advance(rest.size());
        return;
      }
      const char next = rest[size + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++size;
    }
    const char kind = rest[size + 1];
    const char sign = sign_at(at_ + size + 2);
    add_data(before_tag(rest.substr(0, size), sign, kind));
    advance(size + 2 + (sign != 0 ? 1 : 0));
    if (kind == '#') return skip_comment();
    if (kind == '%' && begins_raw()) return read_raw();
    read_tag(kind == '%');
  }

  char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  // `text` without the white space that the tag after it removes.
  std::string_view before_tag(std::string_view text, char sign, char kind) const {
    if (sign == '-') return strip(text, Side::kRight);
    if (sign == '+' || kind == '{') return text;
    const std::size_t line = text.rfind('\n') == text.npos ? 0 : text.rfind('\n') + 1;
    const bool begins_line = line > 0 || line_starting_;
    return begins_line && strip(text.substr(line), Side::kLeft).empty() ? text.substr(0, line)
                                                                        : text;
  }

  void add(Type type, std::string_view text) {
    tokens_.push_back({.type = type, .text = std::string(text), .line = line_});
  }

  void add_data(std::string_view text) {
    if (!text.empty()) add(Type::kData, text);
  }

  void advance(std::size_t bytes) {
    const std::string_view passed = std::string_view(source_).substr(at_, bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    at_ += bytes;
    if (!passed.empty()) line_starting_ = passed.back() == '\n';
  }

  std::size_t space_at(std::size_t at) const {
    const std::string_view rest = std::string_view(source_).substr(at);
    return rest.size() - strip(rest, Side::kLeft).size();
  }

  // Bytes of the end of a tag ("-%}" and the white space after it) at `at`; 0 if there is none.
  std::size_t end_at(std::size_t at, std::string_view closing, bool block) const {
    const std::string_view rest = std::string_view(source_).substr(at);
    const char sign = sign_at(at);
    const std::size_t skipped = sign == '-' || (sign == '+' && block) ? 1 : 0;
    if (!rest.substr(skipped).starts_with(closing)) return 0;
    const std::size_t size = skipped + closing.size();
    if (sign == '-') return size + space_at(at + size);
    const bool trims = block && skipped == 0 && size < rest.size() && rest[size] == '\n';
    return size + (trims ? 1 : 0);
  }

  // Jinja takes a tag that begins at the very end of the source.
  void skip_comment() {
    const int line = line_;
    if (at_ == source_.size()) return;
    for (std::size_t at = at_; at < source_.size(); ++at) {
      if (const std::size_t size = end_at(at, "#}", true); size > 0) {
        return advance(at + size - at_);
      }
    }
    throw SyntaxFailure{"a comment has no end: wanted \"#}\"", line};
  }

  // After "{%" or "{%-": whether " raw %}" follows. Moves to its end.
  bool begins_raw() {
    std::size_t at = at_ + space_at(at_);
    if (std::string_view(source_).substr(at, 3) != "raw") return false;
    at += 3;
    at += space_at(at);
    const std::string_view rest = std::string_view(source_).substr(at);
    std::size_t size = 0;
    if (rest.starts_with("%}")) size = 2;
    if (rest.starts_with("-%}")) size = 3 + space_at(at + 3);
    if (size == 0) return false;
    advance(at + size - at_);
    return true;
  }

  void read_raw() {
    const int line = line_;
    if (at_ == source_.size()) return;
    const std::string_view rest = std::string_view(source_).substr(at_);
    for (std::size_t size = rest.find("{%"); size != rest.npos; size = rest.find("{%", size + 1)) {
      const char sign = sign_at(at_ + size + 2);
      std::size_t at = at_ + size + 2 + (sign != 0 ? 1 : 0);
      at += space_at(at);
      if (std::string_view(source_).substr(at, 6) != "endraw") continue;
      at += 6;
      at += space_at(at);
      const std::size_t end = end_at(at, "%}", true);
      if (end == 0) continue;
      add_data(before_tag(rest.substr(0, size), sign, '%'));
      return advance(at + end - at_);
    }
    throw SyntaxFailure{"a raw block has no end: wanted \"{% endraw %}\"", line};
  }

  void read_tag(bool block) {
    add(block ? Type::kBlockBegin : Type::kVariableBegin, "");
    const int line = line_;
    std::string open;  // brackets that were opened
    while (at_ < source_.size()) {
      if (open.empty()) {
        if (const std::size_t size = end_at(at_, block ? "%}" : "}}", block); size > 0) {
          add(block ? Type::kBlockEnd : Type::kVariableEnd, "");
          return advance(size);
        }
      }
      if (const std::size_t size = space_at(at_); size > 0) {
        advance(size);
      } else {
        read_token(open);
      }
    }
    throw SyntaxFailure{fmt::format("a tag has no end: wanted \"{}\"", block ? "%}" : "}}"), line};
  }

  void read_token(std::string& open) {
    const std::string_view rest = std::string_view(source_).substr(at_);
    const char c = rest[0];
    if (c >= '0' && c <= '9') return read_number(rest);
    if (c == '"' || c == '\'') return read_string(rest);
    if (const std::size_t size = name_size(rest); size > 0) {
      add(Type::kName, rest.substr(0, size));
      return advance(size);
    }
    const auto* const found =
        std::find_if(kOperators.begin(), kOperators.end(),
                     [&](std::string_view text) { return rest.starts_with(text); });
    if (found == kOperators.end()) {
      throw SyntaxFailure{
          fmt::format("unexpected character \"{}\"", rest.substr(0, decode_utf8(rest, 0).length)),
          line_};
    }
    balance(*found, open);
    add(Type::kOperator, *found);
    advance(found->size());
  }

  void balance(std::string_view text, std::string& open) const {
    if (text == "{") open.push_back('}');
    if (text == "(") open.push_back(')');
    if (text == "[") open.push_back(']');
    if (text != "}" && text != ")" && text != "]") return;
    if (open.empty() || open.back() != text[0]) {
      throw SyntaxFailure{open.empty() ? fmt::format("unexpected \"{}\"", text)
                                       : fmt::format("unexpected \"{}\", wanted \"{}\"", text,
                                                     open.substr(open.size() - 1)),
                          line_};
    }
    open.pop_back();
  }

  static std::size_t name_size(std::string_view rest) {
    std::size_t size = 0;
    while (size < rest.size()) {
      const Utf8Char c = decode_utf8(rest, size);
      if (!is_word_character(c.value)) break;
      size += c.length;
    }
    return size;
  }

  void read_number(std::string_view rest) {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    const Number number = number_at(rest, after_dot);
    if (number.size == 0) {
      throw SyntaxFailure{"an integer needs more than 64 bits, which is not supported", line_};
    }
    add(number.is_real ? Type::kReal : Type::kInteger, rest.substr(0, number.size));
    tokens_.back().integer = number.integer;
    tokens_.back().real = number.real;
    advance(number.size);
  }

  void read_string(std::string_view rest) {
    std::size_t size = 1;
    while (size < rest.size() && rest[size] != rest[0]) size += rest[size] == '\\' ? 2 : 1;
    if (size >= rest.size()) throw SyntaxFailure{"a string has no end", line_};
    std::string error;
    const std::string text = unescaped(rest.substr(1, size - 1), error);
    if (!error.empty()) throw SyntaxFailure{error, line_};
    add(Type::kText, text);
    advance(size + 1);
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last token ended with a line end
  std::vector<Lexeme> tokens_;
};

}  // namespace

std::vector<Lexeme> tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace piton::jinja
