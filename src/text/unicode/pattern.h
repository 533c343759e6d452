// Regular expressions of tokenizer files for which there is no hand-written scanner: PCRE2 in UTF-8
// and Unicode mode. The files are written for Oniguruma; syntax that the two read differently (a
// class inside a class, set intersection) is an error.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace piton {

class Pattern {
 public:
  // Throws Error(kData), beginning with `where`, if the expression does not compile.
  Pattern(std::string_view expression, const std::string& where);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // [begin, end) of every match, from left to right, without overlaps; empty matches are left out.
  // May be called from many threads. Throws Error(kData) if the expression needs too much work on
  // this text (catastrophic backtracking).
  std::vector<std::pair<std::size_t, std::size_t>> matches(std::string_view text) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton
