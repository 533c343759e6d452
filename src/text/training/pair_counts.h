// Counts of pairs of neighboring pieces: a hash table with open addressing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/huge_pages.h"

namespace piton {

// Two ids as one number. The numbers are in the order of (left, right).
inline std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}
inline std::int32_t left_of(std::uint64_t pair) { return static_cast<std::int32_t>(pair >> 32); }
inline std::int32_t right_of(std::uint64_t pair) {
  return static_cast<std::int32_t>(pair & 0xFFFFFFFFU);
}

class PairCounts {
 public:
  PairCounts() : slots_(kFirstSlots) {}

  struct Slot {
    std::uint64_t pair = kFree;
    std::int64_t count = 0;
    std::int32_t list = -1;  // for the user of the table
  };

  // The slot of `pair`; a new one if there is none. The reference is valid until the next call.
  Slot& at(std::uint64_t pair) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[place_of(pair)];
    if (slot.pair == kFree) {
      slot.pair = pair;
      ++used_;
    }
    return slot;
  }
  // 0 for a pair that was never added.
  std::int64_t count(std::uint64_t pair) const { return slots_[place_of(pair)].count; }

  // Calls use(slot) for each pair. The order depends on the order in which pairs were added.
  template <typename Use>
  void each(Use&& use) {
    for (Slot& slot : slots_) {
      if (slot.pair != kFree) use(slot);
    }
  }

 private:
  using Slots = std::vector<Slot, HugePageAllocator<Slot>>;

  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  static constexpr std::size_t kFirstSlots = 1 << 12;

  std::size_t place_of(std::uint64_t pair) const {
    const std::size_t mask = slots_.size() - 1;
    std::uint64_t hash = pair * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
    std::size_t place = hash & mask;
    while (slots_[place].pair != pair && slots_[place].pair != kFree) place = (place + 1) & mask;
    return place;
  }
  void grow() {
    Slots old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.pair != kFree) slots_[place_of(slot.pair)] = slot;
    }
  }

  Slots slots_;
  std::size_t used_ = 0;
};

}  // namespace piton
