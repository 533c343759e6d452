// Beginnings of texts for models whose layers have states: a state is that of all tokens of a text,
// so a text can begin with another as a whole, not with a part of it as with pages (PrefixIndex).
//
// A kept text holds its pages and its states, under a number of its own in the cache. There are a
// few of them; the one that was used least recently is forgotten first.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nn/kv_cache.h"

namespace piton {

class KeptTexts {
 public:
  // At most `most` texts of the cache, which must outlive this.
  KeptTexts(KvCache& cache, std::int64_t most) : cache_(&cache), most_(most) {}

  // The number in the cache of the longest text whose tokens are a beginning of `ids`, of this
  // adapter; nothing: there is none. Counts as a use.
  std::optional<std::int64_t> find(std::span<const std::int32_t> ids,
                                   std::optional<std::int64_t> adapter);
  // Its tokens, or 0; no use.
  std::int64_t common(std::span<const std::int32_t> ids, std::optional<std::int64_t> adapter) const;

  // Keeps a copy of a text of the cache as it is now, which has read `ids`; one that has ended
  // becomes a kept text itself. Does nothing (removes the text) if one with these tokens is kept.
  void keep_copy(std::int64_t text, std::span<const std::int32_t> ids,
                 std::optional<std::int64_t> adapter);
  void keep_ended(std::int64_t text, std::span<const std::int32_t> ids,
                  std::optional<std::int64_t> adapter);

  // Forgets texts until `wanted` pages are free or none is left.
  void evict(std::int64_t wanted);

 private:
  struct Text {
    std::int64_t number = 0;  // in the cache
    std::vector<std::int32_t> ids;
    std::optional<std::int64_t> adapter;
    std::int64_t used = 0;  // time of the last use
  };
  const Text* longest(std::span<const std::int32_t> ids, std::optional<std::int64_t> adapter) const;
  // Whether these tokens are kept; that is a use.
  bool use(std::span<const std::int32_t> ids, std::optional<std::int64_t> adapter);
  void add(std::int64_t number, std::span<const std::int32_t> ids,
           std::optional<std::int64_t> adapter);
  void forget_oldest();

  KvCache* cache_;
  std::int64_t most_;
  std::vector<Text> texts_;
  std::int64_t time_ = 0;
};

}  // namespace piton
