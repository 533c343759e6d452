#include "text/models/bpe_merger.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::uint32_t kEnd = 0xFFFFFFFFU;
constexpr std::int32_t kDead = -1;  // a symbol that was merged into the one before

}  // namespace

std::size_t BpeMerger::merge(std::int32_t* symbols, std::size_t count) {
  if (count < 2) return count;
  if (const std::size_t left = tokens_->encode(symbols, count, scratch_); left != 0) return left;
  return count <= kWord ? merge_word(symbols, count) : merge_long(symbols, count);
}

std::size_t BpeMerger::merge_word(std::int32_t* symbols, std::size_t count) {
  std::uint32_t order[kWord];
  std::int32_t result[kWord];
  std::size_t pairs = count - 1;
  const auto look = [&](std::size_t at) {
    const MergeTable::Found found = table_->find(symbols[at], symbols[at + 1]);
    order[at] = found.order;
    result[at] = found.result;
  };
  for (std::size_t i = 0; i < pairs; ++i) look(i);
  while (pairs > 0) {
    std::uint32_t lowest = order[0];
    for (std::size_t i = 1; i < pairs; ++i) lowest = std::min(lowest, order[i]);
    if (lowest == MergeTable::kNone) break;
    std::size_t at = 0;
    while (order[at] != lowest) ++at;
    symbols[at] = result[at];
    --pairs;
    const std::size_t behind = pairs - at;  // symbols after the merged pair
    std::memmove(symbols + at + 1, symbols + at + 2, behind * sizeof(symbols[0]));
    std::memmove(order + at, order + at + 1, behind * sizeof(order[0]));
    std::memmove(result + at, result + at + 1, behind * sizeof(result[0]));
    if (at > 0) look(at - 1);
    if (behind > 0) look(at);
  }
  return pairs + 1;
}

void BpeMerger::mark(std::uint32_t order) {
  for (std::vector<std::uint64_t>& level : marks_) {
    const std::uint64_t bit = std::uint64_t{1} << (order % 64);
    order /= 64;
    const bool was_empty = level[order] == 0;
    level[order] |= bit;
    if (!was_empty) return;
  }
}

void BpeMerger::clear(std::uint32_t order) {
  for (std::vector<std::uint64_t>& level : marks_) {
    level[order / 64] &= ~(std::uint64_t{1} << (order % 64));
    order /= 64;
    if (level[order] != 0) return;
  }
}

std::uint32_t BpeMerger::lowest_order() const {
  if (marks_.back()[0] == 0) return kEnd;
  std::uint32_t place = 0;
  for (auto level = marks_.rbegin(); level != marks_.rend(); ++level) {
    place = place * 64 + static_cast<std::uint32_t>(std::countr_zero((*level)[place]));
  }
  return place;
}

void BpeMerger::push(std::uint32_t at, std::int32_t left, std::int32_t right) {
  const MergeTable::Found found = table_->find_rare(left, right);
  if (found.order == MergeTable::kNone) return;
  std::uint32_t item = 0;
  if (free_items_.empty()) {
    item = static_cast<std::uint32_t>(items_.size());
    items_.emplace_back();
  } else {
    item = free_items_.back();
    free_items_.pop_back();
  }
  std::uint32_t& first = bucket_[found.order];
  if (first == kEnd) mark(found.order);
  items_[item] = {at, first, left, right, found.result};
  first = item;
}

void BpeMerger::take_bucket(std::uint32_t order, std::vector<Item>& out) {
  for (std::uint32_t item = bucket_[order]; item != kEnd; item = items_[item].next) {
    out.push_back(items_[item]);
    free_items_.push_back(item);
  }
  bucket_[order] = kEnd;
  clear(order);
}

void BpeMerger::start_long(const std::int32_t* symbols, std::uint32_t count) {
  if (bucket_.empty()) {
    bucket_.assign(std::max<std::uint32_t>(table_->orders(), 1), kEnd);
    for (std::size_t size = bucket_.size();; size = marks_.back().size()) {
      marks_.emplace_back((size + 63) / 64, 0);
      if (marks_.back().size() == 1) break;
    }
  }
  previous_.resize(count);
  following_.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    previous_[i] = i == 0 ? kEnd : i - 1;
    following_[i] = i + 1 == count ? kEnd : i + 1;
  }
  items_.clear();
  free_items_.clear();
  for (std::uint32_t i = 0; i + 1 < count; ++i) push(i, symbols[i], symbols[i + 1]);
}

void BpeMerger::start_level(Level& level, std::uint32_t order) {
  level.order = order;
  level.next = 0;
  level.batch.clear();
  level.late.clear();
  take_bucket(order, level.batch);
  std::reverse(level.batch.begin(), level.batch.end());
  if (!std::is_sorted(level.batch.begin(), level.batch.end(), is_left_of)) {
    std::sort(level.batch.begin(), level.batch.end(), is_left_of);
  }
}

// Adds pairs of the level's order that appeared after it was started. They are merged in order of
// position.
void BpeMerger::admit_new_pairs(Level& level) {
  std::size_t known = level.late.size();
  take_bucket(level.order, level.late);
  while (known < level.late.size()) {
    const auto end = level.late.begin() + static_cast<std::ptrdiff_t>(++known);
    std::push_heap(level.late.begin(), end, is_right_of);
  }
}

BpeMerger::Item BpeMerger::next_item(Level& level) {
  const bool more = level.next < level.batch.size();
  if (level.late.empty() || (more && !is_left_of(level.late.front(), level.batch[level.next]))) {
    return level.batch[level.next++];
  }
  std::pop_heap(level.late.begin(), level.late.end(), is_right_of);
  const Item item = level.late.back();
  level.late.pop_back();
  return item;
}

void BpeMerger::merge_pair(const Item& item, std::int32_t* symbols) {
  const std::uint32_t right = following_[item.at];
  if (symbols[item.at] != item.left || right == kEnd || symbols[right] != item.right) return;
  symbols[item.at] = item.result;
  symbols[right] = kDead;
  const std::uint32_t next = following_[right];
  following_[item.at] = next;
  if (next != kEnd) {
    previous_[next] = item.at;
    push(item.at, item.result, symbols[next]);
  }
  const std::uint32_t before = previous_[item.at];
  if (before != kEnd) push(before, symbols[before], item.result);
}

std::size_t BpeMerger::merge_long(std::int32_t* symbols, std::size_t count) {
  PITON_ASSERT(count < kEnd);
  start_long(symbols, static_cast<std::uint32_t>(count));
  // A merge may enable another of lower order, which must run before the rest of this bucket:
  // buckets in progress form a stack, with the lowest order on top.
  std::size_t depth = 0;
  while (true) {
    const std::uint32_t lowest = lowest_order();
    if (depth == 0 && lowest == kEnd) break;
    if (depth == 0 || lowest < levels_[depth - 1].order) {
      if (levels_.size() == depth) levels_.emplace_back();
      start_level(levels_[depth++], lowest);
      continue;
    }
    Level& level = levels_[depth - 1];
    if (lowest == level.order) {
      admit_new_pairs(level);
    } else if (level.next == level.batch.size() && level.late.empty()) {
      --depth;
    } else {
      merge_pair(next_item(level), symbols);
    }
  }
  std::size_t left = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (symbols[i] == kDead) continue;
    symbols[left++] = symbols[i];
  }
  return left;
}

}  // namespace piton
