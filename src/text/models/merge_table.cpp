#include "text/models/merge_table.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "base/error.h"

namespace piton {

MergeTable::MergeTable(std::span<const MergeRule> rules) {
  const std::uint64_t size = std::bit_ceil(std::max<std::uint64_t>(64, rules.size() * 2));
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
  filter_.resize(size * 4 / 64);
  filter_shift_ = shift_ - 2;
  for (const MergeRule& rule : rules) {
    PITON_ASSERT(rule.left >= 0 && rule.right >= 0 && rule.order < kMaxOrders);
    const std::uint64_t key = key_of(rule.left, rule.right);
    const std::uint64_t hash = hash_of(key);
    const std::uint64_t bit = hash >> filter_shift_;
    filter_[bit / 64] |= std::uint64_t{1} << (bit % 64);
    std::uint64_t slot = hash >> shift_;
    while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & mask_;
    slots_[slot] = {key, rule.order, rule.result};
    orders_ = std::max(orders_, rule.order + 1);
  }
}

std::vector<MergeRule> MergeTable::rules() const {
  std::vector<MergeRule> rules;
  for (const Slot& slot : slots_) {
    if (slot.key == kEmpty) continue;
    rules.push_back({static_cast<std::int32_t>(slot.key >> 32),
                     static_cast<std::int32_t>(slot.key & 0xFFFFFFFFU), slot.result, slot.order});
  }
  std::sort(rules.begin(), rules.end(), [](const MergeRule& a, const MergeRule& b) {
    return std::tie(a.order, a.left, a.right) < std::tie(b.order, b.left, b.right);
  });
  return rules;
}

}  // namespace piton
