// Which texts a grammar has, for tests: whole ones, and random ones.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "generate/constraints/grammar_walk.h"

namespace piton::test {

class GrammarTexts {
 public:
  explicit GrammarTexts(ByteGrammar grammar)
      : walk_(std::make_shared<const ByteGrammar>(std::move(grammar))) {}

  bool has(std::string_view text) {
    GrammarWalk::Position at = walk_.start();
    for (const char byte : text) {
      at = walk_.after(at, static_cast<std::uint8_t>(byte));
      if (at == GrammarWalk::kDead) return false;
    }
    return walk_.may_end(at);
  }

  // A text of bytes that are drawn where they are possible; after `soft_end` bytes it ends as soon
  // as it may, and closing characters are preferred.
  std::string draw(std::mt19937_64& random, std::size_t soft_end) {
    std::string text;
    GrammarWalk::Position at = walk_.start();
    while (text.size() < 100'000) {
      if (walk_.may_end(at) &&
          (!walk_.may_continue(at) || text.size() >= soft_end || random() % 4 == 0)) {
        return text;
      }
      std::string possible;
      for (int byte = 0; byte < 256; ++byte) {
        if (walk_.after(at, static_cast<std::uint8_t>(byte)) != GrammarWalk::kDead)
          possible += static_cast<char>(byte);
      }
      if (possible.empty()) return "a text that cannot be completed: " + text;
      char chosen = possible[random() % possible.size()];
      if (text.size() >= soft_end) {
        for (const char end : std::string_view("0]}\"")) {
          if (possible.find(end) != std::string::npos) chosen = end;
        }
      }
      text += chosen;
      at = walk_.after(at, static_cast<std::uint8_t>(chosen));
    }
    return "a text that does not end";
  }

 private:
  GrammarWalk walk_;
};

}  // namespace piton::test
