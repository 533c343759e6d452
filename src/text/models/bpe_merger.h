// Byte-pair encoding's inner loop (Sennrich et al. 2016, arXiv:1508.07909): of all neighboring
// pairs that a rule merges, the one with the lowest order goes first, the leftmost among equals,
// until no rule applies.
//
// Hardly any word is merged like this: its encoding is found without (bpe_tokens.h). What is left
// are words with symbols at which a rule could fire that breaks the order, as LLaMA-2's for runs of
// spaces do. Short ones are scanned, longer ones go through a linked list and a bucket for each
// order: O(n) but for sorting positions inside a bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/models/bpe_tokens.h"
#include "text/models/merge_table.h"

namespace piton {

// The rules in both forms that merging goes by.
struct BpeRules {
  explicit BpeRules(std::span<const MergeRule> rules) : table(rules), tokens(table) {}
  MergeTable table;
  BpeTokens tokens;
};

// The working memory of merging. Not for two threads at once.
class BpeMerger {
 public:
  // Keeps a reference.
  explicit BpeMerger(const BpeRules& rules) : table_(&rules.table), tokens_(&rules.tokens) {}

  // Merges symbols[0..count) in place and returns how many are left.
  std::size_t merge(std::int32_t* symbols, std::size_t count);

 private:
  static constexpr std::size_t kWord = 12;  // up to it, closing gaps is cheaper than links
  struct Item {
    std::uint32_t at;
    std::uint32_t next;  // in the bucket, kEnd for the last
    std::int32_t left;
    std::int32_t right;
    std::int32_t result;
  };

  // A bucket whose merges are being done.
  struct Level {
    std::uint32_t order = 0;
    std::size_t next = 0;     // in the batch
    std::vector<Item> batch;  // from left to right
    std::vector<Item> late;   // came while the batch was worked on: a heap, leftmost on top
  };
  static bool is_left_of(const Item& a, const Item& b) { return a.at < b.at; }
  static bool is_right_of(const Item& a, const Item& b) { return a.at > b.at; }

  // As merge(), count at most kWord.
  std::size_t merge_word(std::int32_t* symbols, std::size_t count);
  // As merge(), of any count.
  std::size_t merge_long(std::int32_t* symbols, std::size_t count);
  // Links of the symbols, and their pairs in the buckets.
  void start_long(const std::int32_t* symbols, std::uint32_t count);
  void start_level(Level& level, std::uint32_t order);
  void take_newcomers(Level& level);
  Item next_item(Level& level);
  // Merges the pair, unless one of its symbols has been merged before.
  void merge_pair(const Item& item, std::int32_t* symbols);
  // Moves the items of a bucket to `out`, the last pushed first.
  void take_bucket(std::uint32_t order, std::vector<Item>& out);
  void push(std::uint32_t at, std::int32_t left, std::int32_t right);
  std::uint32_t lowest_order() const;
  void mark(std::uint32_t order);
  void clear(std::uint32_t order);

  const MergeTable* table_;
  const BpeTokens* tokens_;
  BpeTokens::Scratch scratch_;
  std::vector<std::uint32_t> previous_, following_;
  std::vector<Item> items_;
  std::vector<std::uint32_t> free_items_;
  std::vector<std::uint32_t> bucket_;              // [orders] first item
  std::vector<std::vector<std::uint64_t>> marks_;  // which buckets hold items, a 64-ary tree
  std::vector<Level> levels_;
};

}  // namespace piton
