// The merge rules of byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909), found by pair.
#pragma once

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

// Hash table of rules by pair: open addressing, 16-byte slots.
class MergeTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  // More than any vocabulary has. BpeMerger keeps one bucket per order.
  static constexpr std::uint32_t kMaxOrders = 1U << 25;

  struct Found {
    std::uint32_t order = kNone;
    std::int32_t result = 0;
  };

  // If two rules merge the same pair, the later is kept. Ids must not be negative, orders must be
  // below kMaxOrders.
  explicit MergeTable(std::span<const MergeRule> rules);

  Found find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    return find_at(key, hash_of(key));
  }

  // find(), faster if most pairs have no rule: a filter that stays in the cache rejects nine of ten
  // of these.
  Found find_rare(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    const std::uint64_t hash = hash_of(key);
    const std::uint64_t bit = hash >> filter_shift_;
    if ((filter_[bit / 64] >> (bit % 64) & 1) == 0) return {};
    return find_at(key, hash);
  }

  // One more than the largest order.
  std::uint32_t orders() const { return orders_; }

  // The rules in the table, in rising order.
  std::vector<MergeRule> rules() const;

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
  // 2^64 / golden ratio: neighboring keys spread over the table.
  static std::uint64_t hash_of(std::uint64_t key) {
    return (key ^ key >> 29) * 0x9E3779B97F4A7C15U;
  }

  std::vector<Slot> slots_;
  std::vector<std::uint64_t> filter_;  // one bit per hash, 8 to 16 bits per rule
  std::uint64_t mask_ = 0;
  int shift_ = 63;
  int filter_shift_ = 63;
  std::uint32_t orders_ = 0;
};

}  // namespace piton
