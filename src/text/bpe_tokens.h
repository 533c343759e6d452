// The tokens that byte-pair encoding makes, which of them may stand side by side, and the encoding of
// a word found from these alone, without merging it.
//
// For symbols u and v, merged(u v) = merged(u) merged(v) if merged(t1 t2) = t1 t2, t1 the last token of
// merged(u), t2 the first of merged(v): for as long as nothing merges across the cut, both sides go on
// as if alone, and t1 and t2 as if alone inside them, so that the first merge across the cut would be
// one of merged(t1 t2). Therefore the one sequence of tokens that spells a word, where each token
// encodes to itself and each pair of neighbours stays apart, is its encoding; whatever finds it may go
// any way. (The idea is that of the crate `bpe` of GitHub's rust-gems.)
//
// It is looked for from left to right, the longest token first. A place where no token fits is dead
// for good, as only one sequence leads there: the token before is given up for a shorter one, and each
// place is tried once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "text/merge_table.h"

namespace piton {

class BpeTokens {
 public:
  // Keeps a reference to `table`.
  explicit BpeTokens(const MergeTable& table);

  // Working memory of encode(). Not for two threads at once.
  struct Scratch {
    std::vector<std::uint32_t> classes;
    std::vector<std::uint64_t> dead;  // a bit a place
  };

  // Encodes symbols[0..count) in place and returns how many tokens there are. 0, and nothing is done,
  // where words would have to be merged: a symbol is itself made by a rule, or one of few rules could
  // fire of which find_live_rules() cannot make sense.
  std::size_t encode(std::int32_t* symbols, std::size_t count, Scratch& scratch) const;

 private:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::uint32_t kNever = 0xFFFFFFFFU;
  static constexpr std::size_t kMaxLength = 1024;
  static constexpr std::uint8_t kEndsLeft = 1;
  static constexpr std::uint8_t kBeginsRight = 2;
  static constexpr std::uint32_t kAlone = 0;  // the class of symbols of which no rule speaks

  // A token, by id.
  struct Token {
    std::int32_t left = kNone;  // what it is merged from; kNone for a symbol
    std::int32_t right = kNone;
    std::uint32_t time = 0;     // 1 + the order of the rule; 0 for a symbol
    std::int32_t shorter = kNone;  // the longest other token that begins it
    std::uint32_t length = 0;   // in symbols; 0 if no word has this token
  };

  // Of a double array (Aoe 1989): the child of `node` for class c is at base + c, if its parent is
  // `node`.
  struct Node {
    std::int32_t base = 0;
    std::int32_t parent = kNone;
    std::int32_t token = kNone;
  };

  using Edge = std::pair<std::uint32_t, std::int32_t>;  // class, child

  Token& token(std::int32_t id) { return tokens_[static_cast<std::size_t>(id)]; }
  const Token& token(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  bool is_live(std::int32_t left, std::int32_t right, std::int32_t result) const {
    return token(result).left == left && token(result).right == right;
  }
  // True if the symbols of two tokens are merged to these two.
  bool stay_apart(std::int32_t left, std::int32_t right) const;
  // True if the symbols of two tokens do not become these: something merges across the border.
  bool merges_before(std::int32_t left, std::int32_t right) const;
  void find_classes(const std::vector<MergeRule>& rules);
  // A rule is live if it fires in some word and is of a higher order than those that make its pair, so
  // that merging goes through the orders once, from the lowest up.
  void find_live_rules(const std::vector<MergeRule>& rules);
  void build_trie(const std::vector<MergeRule>& rules);
  // By node of a trie: its children, and the longest token on the way to it.
  void place_nodes(const std::vector<std::vector<Edge>>& children, const std::vector<std::int32_t>& best);
  std::int32_t longest(const std::uint32_t* classes, const std::uint32_t* end) const;
  std::size_t encode_run(std::int32_t* out, const std::uint32_t* classes, std::size_t count,
                         std::vector<std::uint64_t>& dead) const;

  const MergeTable* table_;
  std::uint32_t classes_ = 0;
  std::vector<Token> tokens_;
  std::vector<std::uint32_t> class_of_;  // by id
  std::vector<std::uint8_t> unsafe_;     // by class: whether it stands at the border of such a pair
  bool any_unsafe_ = false;
  std::vector<Node> nodes_;
};

}  // namespace piton
