// Byte-pair encoding's inner loop (Sennrich et al. 2016, arXiv:1508.07909): of all neighbouring pairs
// that a rule merges, the one with the lowest order goes first, the leftmost among equals, until no
// rule applies.
//
// Short words are scanned, O(n^2) with a constant of an eighth; long ones use a linked list and one
// bucket a rule order, O(n) but for the sorting of positions inside a bucket, so that a megabyte
// without spaces costs about as much a byte as prose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace piton {

struct MergeRule {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t result = 0;
  std::uint32_t order = 0;  // lower merges first; equal ones from left to right
};

// Rules by pair, an open hash table of 16-byte slots.
class MergeTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;

  struct Found {
    std::uint32_t order = kNone;
    std::int32_t result = 0;
  };

  // Where two rules merge one pair, the later stands. Ids are not negative.
  explicit MergeTable(std::span<const MergeRule> rules);

  Found find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::uint64_t slot = place(key);; slot = (slot + 1) & mask_) {
      const Slot& s = slots_[slot];
      if (s.key == key) return {s.order, s.result};
      if (s.key == kEmpty) return {};
    }
  }

  // One more than the largest order.
  std::uint32_t orders() const { return orders_; }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    std::uint32_t order = kNone;
    std::int32_t result = 0;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  // 2^64 / golden ratio: neighbouring keys spread over the table.
  std::uint64_t place(std::uint64_t key) const {
    return ((key ^ key >> 29) * 0x9E3779B97F4A7C15U) >> shift_;
  }

  std::vector<Slot> slots_;
  std::uint64_t mask_ = 0;
  int shift_ = 63;
  std::uint32_t orders_ = 0;
};

// The working memory of merging. Not for two threads at once.
class BpeMerger {
 public:
  explicit BpeMerger(const MergeTable& table) : table_(&table) {}

  // Merges symbols[0..count) in place and returns how many are left.
  std::size_t merge(std::int32_t* symbols, std::size_t count);

 private:
  // 64 symbols: above, the buckets win (measured on Chinese and on runs of one letter).
  static constexpr std::size_t kShort = 64;

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
    std::size_t next = 0;      // in the batch
    std::vector<Item> batch;   // from left to right
    std::vector<Item> late;    // came while the batch was worked on: a heap, leftmost on top
  };
  static bool is_left_of(const Item& a, const Item& b) { return a.at < b.at; }
  static bool is_right_of(const Item& a, const Item& b) { return a.at > b.at; }

  std::size_t merge_short(std::int32_t* symbols, std::size_t count);
  std::size_t merge_long(std::int32_t* symbols, std::size_t count);
  // Moves the items of a bucket to `out`, the last pushed first.
  void take_bucket(std::uint32_t order, std::vector<Item>& out);
  void push(std::uint32_t at, std::int32_t left, std::int32_t right);
  std::uint32_t lowest_order() const;
  void mark(std::uint32_t order);
  void clear(std::uint32_t order);

  const MergeTable* table_;
  std::vector<std::uint32_t> previous_, following_;
  std::vector<Item> items_;
  std::vector<std::uint32_t> free_items_;
  std::vector<std::uint32_t> bucket_;              // [orders] first item
  std::vector<std::vector<std::uint64_t>> marks_;  // which buckets hold items, a 64-ary tree
  std::vector<Level> levels_;
};

}  // namespace piton
