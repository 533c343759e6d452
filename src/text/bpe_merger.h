// Byte-pair encoding's inner loop (Sennrich et al. 2016, arXiv:1508.07909): of all neighbouring pairs
// that a rule merges, the one with the lowest order goes first, the leftmost among equals, until no
// rule applies.
//
// Words of up to 64 symbols are scanned. Longer ones are cut: for symbols u and v,
//
//   merged(u v) = merged(u) merged(v)   if   merged(t1 t2) = t1 t2,
//
// t1 the symbols of the last token of merged(u), t2 those of the first of merged(v). For as long as
// nothing merges across the cut, both sides go on as if alone, and inside them the symbols of t1 and
// of t2 as if those were alone; so the first merge across the cut would be one of merged(t1 t2), which
// has none. (The order of merges in u against those in v does not matter.) Windows of 64 symbols that
// overlap by two tokens are merged one after another; where the first token of the next is the token
// that stood there in the one before, the condition holds. A megabyte without spaces so costs about
// as much a byte as new words do. Where no cut is found, windows are larger, and at last there is one,
// with a linked list and a bucket for each order: O(n) but for sorting positions inside a bucket.
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
  // So that an order and a place in a window make an int32.
  static constexpr std::uint32_t kMaxOrders = 1U << 25;

  struct Found {
    std::uint32_t order = kNone;
    std::int32_t result = 0;
  };

  // Where two rules merge one pair, the later stands. Ids are not negative, orders below kMaxOrders.
  explicit MergeTable(std::span<const MergeRule> rules);

  Found find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    return find_at(key, hash_of(key));
  }

  // The same, faster where most pairs have no rule: nine of ten of these are known by a filter, which
  // stays in the cache.
  Found find_rare(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    const std::uint64_t hash = hash_of(key);
    const std::uint64_t bit = hash >> filter_shift_;
    if ((filter_[bit / 64] >> (bit % 64) & 1) == 0) return {};
    return find_at(key, hash);
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
  Found find_at(std::uint64_t key, std::uint64_t hash) const {
    for (std::uint64_t slot = hash >> shift_;; slot = (slot + 1) & mask_) {
      const Slot& s = slots_[slot];
      if (s.key == key) return {s.order, s.result};
      if (s.key == kEmpty) return {};
    }
  }

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  // 2^64 / golden ratio: neighbouring keys spread over the table.
  static std::uint64_t hash_of(std::uint64_t key) {
    return (key ^ key >> 29) * 0x9E3779B97F4A7C15U;
  }

  std::vector<Slot> slots_;
  std::vector<std::uint64_t> filter_;  // a bit a hash, 8 to 16 bits a rule
  std::uint64_t mask_ = 0;
  int shift_ = 63;
  int filter_shift_ = 63;
  std::uint32_t orders_ = 0;
};

// The working memory of merging. Not for two threads at once.
class BpeMerger {
 public:
  explicit BpeMerger(const MergeTable& table) : table_(&table) {}

  // Merges symbols[0..count) in place and returns how many are left.
  std::size_t merge(std::int32_t* symbols, std::size_t count);

 private:
  static constexpr std::size_t kWord = 12;           // up to it, closing gaps is cheaper than links
  static constexpr std::size_t kWindow = 64;        // a place in it has six bits
  static constexpr std::size_t kLargeWindow = 2048;  // longer than any piece
  static constexpr int kCuts = 4;                    // places of a window that are tried

  // A stretch of a word, merged.
  struct Window {
    std::size_t at = 0;                // in the word
    std::size_t size = 0;              // symbols before merging
    std::vector<std::int32_t> tokens;  // one for each merged symbol
    std::vector<std::uint32_t> begins; // where each begins in the window; behind the last, `size`
    std::size_t length(std::size_t token) const { return begins[token + 1] - begins[token]; }
  };

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

  // As merge(), count at most kWord.
  std::size_t merge_word(std::int32_t* symbols, std::size_t count);
  // As merge(), count at most kWindow. `begins`, unless null, gets the place of each result.
  std::size_t merge_window(std::int32_t* symbols, std::size_t count, std::uint32_t* begins);
  // As merge(), of any count.
  std::size_t merge_long(std::int32_t* symbols, std::size_t count, std::uint32_t* begins);
  // As merge(), of the word in word_; false if the word cannot be cut.
  bool merge_windows(std::vector<std::int32_t>& out);
  void fill(Window& window, std::size_t at, std::size_t size);
  // True if the symbols of word_ [at, at + left) and [at + left, at + left + right), each of which
  // merges to one token, do so together.
  bool stay_apart(std::size_t at, std::size_t left, std::size_t right);
  bool find_next(const Window& window, std::size_t size, Window& next, std::size_t& cut);
  // Moves the items of a bucket to `out`, the last pushed first.
  void take_bucket(std::uint32_t order, std::vector<Item>& out);
  void push(std::uint32_t at, std::int32_t left, std::int32_t right);
  std::uint32_t lowest_order() const;
  void mark(std::uint32_t order);
  void clear(std::uint32_t order);

  const MergeTable* table_;
  std::vector<std::int32_t> word_;
  std::vector<std::int32_t> merged_;
  std::vector<std::int32_t> pair_;
  Window window_, next_;
  std::vector<std::uint32_t> previous_, following_;
  std::vector<Item> items_;
  std::vector<std::uint32_t> free_items_;
  std::vector<std::uint32_t> bucket_;              // [orders] first item
  std::vector<std::vector<std::uint64_t>> marks_;  // which buckets hold items, a 64-ary tree
  std::vector<Level> levels_;
};

}  // namespace piton
