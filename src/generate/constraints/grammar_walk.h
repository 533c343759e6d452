// Reads bytes with a ByteGrammar: which bytes may follow, and whether the text may end.
//
// The sets of network states (each with the rules that called it) are numbered as they are met, so
// that a byte after the same set costs one look-up (a lazy deterministic automaton).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "generate/constraints/byte_grammar.h"

namespace piton {

class GrammarWalk {
 public:
  using Position = std::int32_t;
  static constexpr Position kDead = -1;  // no text of the grammar begins so

  explicit GrammarWalk(std::shared_ptr<const ByteGrammar> grammar);

  Position start() const { return start_; }
  // The place after one more byte; `from` is not kDead.
  Position after(Position from, std::uint8_t byte);
  bool may_end(Position place) const { return places_[place].may_end; }
  bool may_continue(Position place) const { return !places_[place].threads.empty(); }

  // Forgets all places but `kept`, and returns its new number. For when places() is large.
  Position forget_others(Position kept);
  std::size_t places() const { return places_.size(); }

 private:
  using Callers = std::int32_t;  // index in calls_; -1: none
  struct Thread {
    ByteGrammar::State state;
    Callers callers;
    auto operator<=>(const Thread&) const = default;
  };
  struct PositionFacts {
    std::vector<Thread> threads;  // sorted; each has an edge with a byte
    bool may_end = false;
    std::array<Position, 256> next;
  };
  struct CallerFacts {
    ByteGrammar::State back_to;
    Callers outer;
    auto operator<=>(const CallerFacts&) const = default;
  };

  Position place_of(std::vector<Thread> entered);
  Callers callers_of(CallerFacts facts);

  std::shared_ptr<const ByteGrammar> grammar_;
  std::vector<CallerFacts> calls_;
  std::map<CallerFacts, Callers> call_numbers_;
  std::vector<PositionFacts> places_;
  std::map<std::pair<std::vector<Thread>, bool>, Position> numbers_;
  Position start_ = 0;
};

}  // namespace piton
