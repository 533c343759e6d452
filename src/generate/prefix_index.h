// Which pages of a cache hold which beginnings of texts, so that a text that begins like an earlier
// one does not compute its beginning again.
//
// The index is a tree: a node is a page of kCachePage tokens after those of its parent, or of fewer
// at the end of a text. It holds its pages (CachePages::hold) until evict() frees those that were
// used least recently. A text may begin with a part of a page: it gets a copy when it appends.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "nn/cache_pages.h"

namespace piton {

class PrefixIndex {
 public:
  static constexpr std::int64_t kRoot = 0;  // the node before the first page of every text
  // Texts of different adapters have different keys and values, and so roots: 0 and below.
  static std::int64_t root_of(std::optional<std::int64_t> adapter) {
    return adapter ? kRoot - 1 - *adapter : kRoot;
  }

  explicit PrefixIndex(CachePages& pages) : pages_(&pages) {}

  // The longest known beginning of `ids`, from this root on.
  struct Prefix {
    std::vector<std::int32_t> pages;
    std::int64_t tokens = 0;    // in these pages
    std::int64_t node = kRoot;  // the root, or of the last page that is used as a whole
  };
  Prefix find(std::span<const std::int32_t> ids, std::int64_t root = kRoot);

  // Adds the page after node `parent`, which has the keys and values of `ids`: kCachePage tokens,
  // or fewer and at least one, if the text has ended. The caller holds the pages of `parent` and
  // above. Returns its node; nothing if there is one with these tokens in another page.
  std::optional<std::int64_t> add(std::int64_t parent, std::span<const std::int32_t> ids,
                                  std::int32_t page);

  // Forgets pages that only the index holds, until `wanted` are free or none is left.
  void evict(std::int64_t wanted);

 private:
  using Key = std::pair<std::int64_t, std::vector<std::int32_t>>;  // parent, tokens
  struct Node {
    std::int64_t number = 0;
    std::int32_t page = 0;
    std::int64_t depth = 0;
    std::int64_t used = 0;  // time of the last use
  };
  void touch(std::int64_t node);
  // The node after `parent` with the most tokens at its beginning in common with `ids`.
  struct Common {
    const Node* node = nullptr;
    std::int64_t tokens = 0;
  };
  Common most_common(std::int64_t parent, std::span<const std::int32_t> ids) const;

  CachePages* pages_;
  std::map<Key, Node> nodes_;         // children of one parent in the order of their tokens
  std::map<std::int64_t, Key> keys_;  // of each node
  std::int64_t last_number_ = kRoot;
  std::int64_t time_ = 0;
};

}  // namespace piton
