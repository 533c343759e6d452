// A set of texts, as a network of states that read bytes: what a constraint allows.
//
// A rule is a network with one first state. An edge reads one byte of a range, reads nothing, or
// reads a text of a rule (a call); so rules may be recursive, as JSON is. GrammarBuilder makes the
// network from parts, as in a grammar; GrammarWalk reads texts with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace piton {

struct ByteGrammar {
  using State = std::int32_t;
  struct ByteEdge {
    State to = 0;
    std::uint8_t first = 0;  // of a range of bytes, both inclusive
    std::uint8_t last = 0;
  };
  struct Call {
    State to = 0;     // after the text of the rule
    State first = 0;  // of the rule
  };
  struct Node {
    std::vector<ByteEdge> bytes;
    std::vector<Call> calls;
    std::vector<State> free;  // reached without a byte
    bool end = false;         // a text of the rule may end here
  };
  std::vector<Node> nodes;
  State first = 0;
};

class GrammarBuilder {
 public:
  using Part = std::int32_t;
  using Rule = std::int32_t;

  Part bytes(std::uint8_t first, std::uint8_t last);
  Part literal(std::string_view text);
  Part sequence(std::vector<Part> parts);  // of no part: the empty text
  Part choice(std::vector<Part> parts);    // of no part: no text at all
  Part optional(Part part) { return choice({part, sequence({})}); }
  // `part` between `least` and `most` times; unset: any number.
  Part repeat(Part part, std::int64_t least, std::optional<std::int64_t> most);

  // A rule is declared, used and defined in any order.
  Rule new_rule();
  void define(Rule rule, Part part);
  Part call(Rule rule);

  // The texts of `whole`, without states from which no text can be completed. Throws
  // Error(kUsage), beginning with `where`, if there is no text at all, if a rule calls itself
  // before it reads a byte, or if the network has more than a million states.
  ByteGrammar finish(Part whole, std::string_view where) const;

 private:
  enum class Kind : std::uint8_t { kBytes, kSequence, kChoice, kRepeat, kCall };
  struct Entry {
    Kind kind;
    std::uint8_t first = 0;
    std::uint8_t last = 0;
    std::vector<Part> parts;
    std::int64_t least = 0;
    std::optional<std::int64_t> most;
    Rule rule = 0;
  };
  class Network;
  Part add(Entry entry);

  std::vector<Entry> entries_;
  std::vector<Part> rules_;  // -1: not defined yet
};

}  // namespace piton
