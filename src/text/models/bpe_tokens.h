// The tokens that byte-pair encoding makes, which of them may be adjacent, and the encoding
// of a word found from these alone, without merging it.
//
// For symbols u and v, merged(u v) = merged(u) merged(v) if merged(t1 t2) = t1 t2, t1 the last
// token of merged(u), t2 the first of merged(v): for as long as nothing merges across the cut, both
// sides go on as if alone, and t1 and t2 as if alone inside them, so that the first merge across
// the cut would be one of merged(t1 t2). Therefore the one sequence of tokens that spells a word,
// where each token encodes to itself and each pair of neighbors stays apart, is its encoding;
// whatever finds it may go any way. (The idea is that of the crate `bpe` of GitHub's rust-gems.)
//
// It is looked for from left to right, the longest token first. A place where no token fits is dead
// for good, as only one sequence leads there: the token before is given up for a shorter one, and
// each place is tried once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/models/merge_table.h"

namespace piton {

class BpeTokens {
 public:
  explicit BpeTokens(const MergeTable& table);

  // Working memory of encode(). Not for two threads at once.
  struct Scratch {
    std::vector<std::uint32_t> symbols;
    std::vector<std::uint64_t> dead;  // a bit a place
  };

  // Encodes symbols[0..count) in place and returns how many tokens there are. 0, and nothing is
  // done, where words would have to be merged: a symbol is itself made by a rule, or one of few
  // rules could fire that break the order (find_live_rules).
  std::size_t encode(std::int32_t* symbols, std::size_t count, Scratch& scratch) const;

 private:
  // Tokens are numbered: first the symbols that rules speak of, then what live rules make, the
  // lowest order first.
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  static constexpr std::uint32_t kAlone = 0xFFFFFFFEU;  // a symbol that is in no rule
  static constexpr std::uint32_t kNever = 0xFFFFFFFFU;
  static constexpr std::uint32_t kMaxLength = 1024;
  static constexpr int kIndexBits = 21;
  static constexpr int kTimeBits = 22;
  static constexpr std::size_t kMaxTokens = std::size_t{1} << kIndexBits;
  // Symbols whose pairs are all kept in a square table.
  static constexpr std::size_t kSquare = 256;

  struct Token {
    std::uint32_t left = kNone;  // what it is merged from; kNone for a symbol
    std::uint32_t right = kNone;
    std::uint32_t time = 0;    // of its rule: 1, 2, ... for the different orders; 0 for a symbol
    std::uint32_t length = 1;  // in symbols
    std::uint32_t shorter = kNone;  // the longest other token that begins it
    std::uint32_t last = kNone;     // its last symbol
    // When its first and its last symbol are merged with the one beside them; kNever for a symbol.
    std::uint32_t first_time = kNever;
    std::uint32_t last_time = kNever;
  };

  // Of a double array (Aoe 1989): the child of `node` for a symbol is at base + symbol, if its
  // parent is `node`.
  struct Node {
    std::uint32_t base = 0;
    std::uint32_t parent = kNone;
    std::uint32_t longest = kNone;  // token on the way to it
  };

  void find_symbols(std::span<const MergeRule> rules);
  // A rule is live if it fires in some word and is of a higher order than those that make its pair,
  // so that merging goes through the orders once, from the lowest up. A pair of symbols is unsafe
  // where a rule could fire that is not live: words that have it are merged.
  void find_live_rules(std::span<const MergeRule> rules);
  void find_unsafe_pairs(std::span<const MergeRule> rules);
  void add_token(std::uint32_t left, std::uint32_t right, std::uint32_t time);
  void build_trie();

  // When the rule of a pair fires; kNever if it has no live one.
  std::uint32_t time_of(std::uint32_t left, std::uint32_t right) const;
  // The same of two symbols.
  std::uint32_t time_of_symbols(std::uint32_t left, std::uint32_t right) const {
    return square_.empty() ? time_of(left, right) : square_[left * symbols_ + right];
  }
  // Whether the symbols of two tokens become other tokens than these: something merges across the
  // border. merges_across() is either of the two below.
  bool merges_across(std::uint32_t left, std::uint32_t right) const;
  // The two symbols at the border do; `time` is that of their rule.
  static bool symbols_merge(const Token& left, const Token& right, std::uint32_t time) {
    return time < left.last_time && time <= right.first_time;
  }
  // Larger parts do.
  bool parts_merge(std::uint32_t left, std::uint32_t right) const;
  std::uint32_t longest(const std::uint32_t* symbols, const std::uint32_t* end) const;
  // Encodes symbols that are in rules, to ids.
  std::size_t encode_run(const std::uint32_t* symbols, std::size_t count, std::int32_t* out,
                         std::vector<std::uint64_t>& dead) const;

  std::vector<std::uint32_t>
      index_of_;  // of ids: the symbol, kAlone, or kNone for what a rule makes
  std::size_t symbols_ = 0;
  std::vector<Token> tokens_;
  std::vector<std::int32_t> ids_;      // by token
  std::vector<std::uint32_t> square_;  // [symbols, symbols] times, where there are few symbols
  std::vector<std::uint64_t> pairs_;   // open hash table: left, right, time; 0 is free
  std::vector<std::uint64_t> pair_filter_;
  int pair_shift_ = 0;
  std::vector<std::uint8_t> unsafe_;  // by symbol: whether it ends the left or begins the right
  bool any_unsafe_ = false;
  std::vector<Node> nodes_;
};

}  // namespace piton
