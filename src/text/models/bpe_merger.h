// Inner loop of byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909): of all neighboring
// pairs that have a merge rule, the pair with the lowest order is merged, the leftmost among
// equals, until no rule applies.
//
// Most words do not need this: bpe_tokens.h finds their encoding without merging. The rest are
// words with symbols at which a rule could fire that breaks the order, as in LLaMA-2's runs of
// spaces. Up to kWord symbols are scanned; longer words use a linked list and one bucket per order:
// O(n) apart from sorting the positions in a bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "text/models/bpe_tokens.h"
#include "text/models/merge_table.h"

namespace piton {

// The merge rules in the two forms that BpeMerger uses.
struct BpeRules {
  explicit BpeRules(std::span<const MergeRule> rules) : table(rules), tokens(table) {}
  MergeTable table;
  BpeTokens tokens;
};

// Merges words. Holds working memory, so each thread needs its own.
class BpeMerger {
 public:
  // Keeps a reference to `rules`.
  explicit BpeMerger(const BpeRules& rules) : table_(&rules.table), tokens_(&rules.tokens) {}

  // Merges symbols[0..count) in place and returns how many are left.
  std::size_t merge(std::int32_t* symbols, std::size_t count);

 private:
  static constexpr std::size_t kWord =
      12;  // up to this length, moving symbols is cheaper than a linked list
  struct Item {
    std::uint32_t at;
    std::uint32_t next;  // in the bucket, kEnd for the last
    std::int32_t left;
    std::int32_t right;
    std::int32_t result;
  };

  // A bucket in progress.
  struct Level {
    std::uint32_t order = 0;
    std::size_t next = 0;     // in the batch
    std::vector<Item> batch;  // from left to right
    std::vector<Item> late;   // added after the batch was started; a heap, leftmost on top
  };
  static bool is_left_of(const Item& a, const Item& b) { return a.at < b.at; }
  static bool is_right_of(const Item& a, const Item& b) { return a.at > b.at; }

  // merge() for count <= kWord.
  std::size_t merge_word(std::int32_t* symbols, std::size_t count);
  // merge() for any count.
  std::size_t merge_long(std::int32_t* symbols, std::size_t count);
  // Builds the linked list of symbols and puts their pairs into the buckets.
  void start_long(const std::int32_t* symbols, std::uint32_t count);
  void start_level(Level& level, std::uint32_t order);
  void admit_new_pairs(Level& level);
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
