// Byte-pair encoding without merging: the tokens that the rules can make, which of them may be
// neighbors, and a search for the encoding of a word.
//
// Let merged(w) be the encoding of a string of symbols w. For two strings u and v, let t1 be the
// last token of merged(u) and t2 the first of merged(v). If merged(t1 t2) = t1 t2, then merged(u v)
// = merged(u) merged(v): while nothing merges across the cut, both sides merge as if alone, and so
// do t1 and t2 inside them; the first merge across the cut would also be a merge of merged(t1 t2).
// Hence the encoding of a word is the only sequence of tokens that spells it in which each token
// encodes to itself and no two neighbors merge. Any search that finds it will do. (The idea is from
// the crate `bpe` in GitHub's rust-gems.)
//
// The search goes from left to right and tries the longest token first. A place where no token fits
// is a dead end for good, because only one sequence leads there: the token before it is replaced by
// a shorter one. Each place is tried once.
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

  // Working memory of encode(); one per concurrent call.
  struct Scratch {
    std::vector<std::uint32_t> symbols;
    std::vector<std::uint64_t> dead;  // one bit per place
  };

  // Encodes symbols[0..count) in place and returns the number of tokens. Returns 0 and changes
  // nothing if the word must be merged (BpeMerger): a symbol is the result of a rule, or one of the
  // few rules that break the order could fire (find_live_rules).
  std::size_t encode(std::int32_t* symbols, std::size_t count, Scratch& scratch) const;

 private:
  // Token numbers: first the symbols that occur in rules, then the results of live rules in rising
  // order.
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  static constexpr std::uint32_t kAlone = 0xFFFFFFFEU;  // a symbol that is in no rule
  static constexpr std::uint32_t kNever = 0xFFFFFFFFU;
  static constexpr std::uint32_t kMaxLength = 1024;
  static constexpr int kIndexBits = 21;
  static constexpr int kTimeBits = 22;
  static constexpr std::size_t kMaxTokens = std::size_t{1} << kIndexBits;
  // Up to this number of symbols, the times of all pairs are in a square table.
  static constexpr std::size_t kSquare = 256;

  struct Token {
    std::uint32_t left = kNone;  // the tokens it is merged from; kNone for a symbol
    std::uint32_t right = kNone;
    std::uint32_t time = 0;         // of its rule: 1, 2, ... by rank of the order; 0 for a symbol
    std::uint32_t length = 1;       // in symbols
    std::uint32_t shorter = kNone;  // the longest token that is a proper prefix
    std::uint32_t last = kNone;     // its last symbol
    // When its first and last symbol merge with their neighbors inside it; kNever for a symbol.
    std::uint32_t first_time = kNever;
    std::uint32_t last_time = kNever;
  };

  // Node of a double-array trie (Aoe 1989): the child for a symbol is at base + symbol, if the
  // parent of that entry is this node.
  struct Node {
    std::uint32_t base = 0;
    std::uint32_t parent = kNone;
    std::uint32_t longest = kNone;  // longest token on the path to it
  };

  void find_symbols(std::span<const MergeRule> rules);
  // A rule is live if it fires in some word and its order is higher than the orders of the rules
  // that make its pair: then merging passes once through the orders, from the lowest up. A pair of
  // symbols is unsafe if a rule that is not live could fire there: words with such a pair are left
  // to BpeMerger.
  void find_live_rules(std::span<const MergeRule> rules);
  void find_unsafe_pairs(std::span<const MergeRule> rules);
  void add_token(std::uint32_t left, std::uint32_t right, std::uint32_t time);
  void build_trie();

  // Time of the rule of a pair; kNever if the pair has no live rule.
  std::uint32_t time_of(std::uint32_t left, std::uint32_t right) const;
  // time_of() for two symbols.
  std::uint32_t time_of_symbols(std::uint32_t left, std::uint32_t right) const {
    return square_.empty() ? time_of(left, right) : square_[left * symbols_ + right];
  }
  // Whether a merge crosses the border of two adjacent tokens: symbols_merge() or parts_merge().
  bool merges_across(std::uint32_t left, std::uint32_t right) const;
  // Whether the two symbols at the border merge; `time` is that of their rule.
  static bool symbols_merge(const Token& left, const Token& right, std::uint32_t time) {
    return time < left.last_time && time <= right.first_time;
  }
  // Whether larger parts merge across the border.
  bool parts_merge(std::uint32_t left, std::uint32_t right) const;
  std::uint32_t longest(const std::uint32_t* symbols, const std::uint32_t* end) const;
  // Encodes symbols that all occur in rules. out: their ids.
  std::size_t encode_run(const std::uint32_t* symbols, std::size_t count, std::int32_t* out,
                         std::vector<std::uint64_t>& dead) const;

  std::vector<std::uint32_t>
      index_of_;  // [ids] the symbol, kAlone, or kNone for the result of a rule
  std::size_t symbols_ = 0;
  std::vector<Token> tokens_;
  std::vector<std::int32_t> ids_;      // by token
  std::vector<std::uint32_t> square_;  // [symbols, symbols] times; empty if there are many symbols
  std::vector<std::uint64_t> pairs_;   // open hash table: left, right, time; 0 is free
  std::vector<std::uint64_t> pair_filter_;
  int pair_shift_ = 0;
  std::vector<std::uint8_t> unsafe_;  // [symbols] kEndsLeft, kBeginsRight: side of an unsafe pair
  bool any_unsafe_ = false;
  std::vector<Node> nodes_;
};

}  // namespace piton
