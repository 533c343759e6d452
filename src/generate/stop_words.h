// Words at which a text ends: looked for in the text as it is made, token by token.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace piton {

// The parts that push() and finish() return are together the text before the stop
// word that is complete first. What may be the beginning of a stop word is withheld
// until the rest of it is known. If no pushed text ends inside a UTF-8 character,
// no returned part does.
class StopWords {
 public:
  // Words are not empty.
  explicit StopWords(std::vector<std::string> words) : words_(std::move(words)) {}

  std::string push(std::string_view text);
  std::string finish();
  // A word was met: nothing more comes.
  bool found() const { return found_.has_value(); }
  // That word; "" if none was met. Of several that begin at one place the first.
  std::string_view word() const { return found_ ? words_[*found_] : std::string_view(); }

 private:
  std::vector<std::string> words_;
  std::string held_;
  std::optional<std::size_t> found_;  // in words_
};

}  // namespace piton
