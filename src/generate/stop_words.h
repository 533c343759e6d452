// Words at which a text ends: looked for in the text as it is made, token by token.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace piton {

// The parts that push() and finish() return, one after the other, are the text up to the stop word
// that is complete first, without it. What may be the beginning of one is withheld until it is
// certain; no part ends
// inside a UTF-8 character if none that is pushed does.
class StopWords {
 public:
  // Words are not empty.
  explicit StopWords(std::vector<std::string> words) : words_(std::move(words)) {}

  std::string push(std::string_view text);
  std::string finish();
  // A word was met: nothing more comes.
  bool found() const { return found_; }

 private:
  std::vector<std::string> words_;
  std::string held_;
  bool found_ = false;
};

}  // namespace piton
