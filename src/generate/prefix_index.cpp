#include "generate/prefix_index.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace piton {

PrefixIndex::Prefix PrefixIndex::find(std::span<const std::int32_t> ids, std::int64_t root) {
  Prefix prefix{.pages = {}, .node = root};
  while (std::ssize(ids) >= kCachePage) {
    const auto tokens = ids.first(kCachePage);
    const auto found = nodes_.find({prefix.node, {tokens.begin(), tokens.end()}});
    if (found == nodes_.end()) break;
    prefix.pages.push_back(found->second.page);
    prefix.node = found->second.number;
    ids = ids.subspan(kCachePage);
  }
  prefix.tokens = std::ssize(prefix.pages) * kCachePage;
  const Common rest = most_common(prefix.node, ids);
  if (rest.tokens > 0) {
    prefix.pages.push_back(rest.node->page);
    prefix.tokens += rest.tokens;
  }
  touch(rest.tokens > 0 ? rest.node->number : prefix.node);
  return prefix;
}

// Of sorted lists, one next to the place of `ids` has the longest common beginning with it.
PrefixIndex::Common PrefixIndex::most_common(std::int64_t parent,
                                             std::span<const std::int32_t> ids) const {
  Common best;
  if (ids.empty()) return best;
  const auto tokens = ids.first(std::min<std::size_t>(ids.size(), kCachePage));
  const auto look = [&](const Key& key, const Node& node) {
    if (key.first != parent) return;
    const auto end = std::ranges::mismatch(key.second, tokens).in2;
    const std::int64_t common = end - tokens.begin();
    if (common > best.tokens) best = {.node = &node, .tokens = common};
  };
  const auto next = nodes_.lower_bound({parent, {tokens.begin(), tokens.end()}});
  if (next != nodes_.end()) look(next->first, next->second);
  if (next != nodes_.begin()) look(std::prev(next)->first, std::prev(next)->second);
  return best;
}

std::optional<std::int64_t> PrefixIndex::add(std::int64_t parent, std::span<const std::int32_t> ids,
                                             std::int32_t page) {
  const std::int64_t tokens = std::ssize(ids);
  PITON_ASSERT(tokens > 0 && tokens <= kCachePage, "a page of {} tokens", tokens);
  const auto above = keys_.find(parent);
  PITON_ASSERT(parent <= kRoot || above != keys_.end(), "node {} was evicted", parent);
  if (tokens < kCachePage) {
    const Common known = most_common(parent, ids);
    if (known.tokens == tokens) {
      touch(known.node->number);
      return std::nullopt;
    }
  }
  const std::int64_t depth = parent <= kRoot ? 1 : nodes_.at(above->second).depth + 1;
  const auto [place, is_new] = nodes_.try_emplace({parent, {ids.begin(), ids.end()}});
  Node& node = place->second;
  if (is_new) {
    node = {.number = ++last_number_, .page = page, .depth = depth};
    keys_[node.number] = place->first;
    pages_->hold(page);
  }
  touch(node.number);
  if (node.page != page) return std::nullopt;
  return node.number;
}

void PrefixIndex::evict(std::int64_t wanted) {
  if (pages_->free() >= wanted) return;
  std::vector<Node> idle;
  for (const auto& [key, node] : nodes_) {
    if (pages_->holders(node.page) == 1) idle.push_back(node);
  }
  // A node is never used later than its parent, so children go first.
  std::ranges::sort(idle, [](const Node& a, const Node& b) {
    return a.used != b.used ? a.used < b.used : a.depth > b.depth;
  });
  for (const Node& node : idle) {
    if (pages_->free() >= wanted) return;
    const auto key = keys_.find(node.number);
    nodes_.erase(key->second);
    keys_.erase(key);
    pages_->release(node.page);
  }
}

// Marks the node and all above it as used now.
void PrefixIndex::touch(std::int64_t node) {
  ++time_;
  while (node > kRoot) {
    const Key& key = keys_.at(node);
    nodes_.at(key).used = time_;
    node = key.first;
  }
}

}  // namespace piton
