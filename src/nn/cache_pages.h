// Which pages of a cache are whose: tables of texts, and how many hold each page. Host memory only;
// the keys and values are in KvCache.
//
// A page has kCachePage tokens. Texts with a common beginning share its pages. A page that is
// shared is never written: a text that appends to one first gets a copy of it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cached_attention.h"

namespace piton {

inline std::int64_t pages_of(std::int64_t tokens) { return (tokens + kCachePage - 1) / kCachePage; }

class CachePages {
 public:
  // Grows to `pages`, which is not less than now. New pages are free.
  void grow(std::int64_t pages);
  std::int64_t size() const { return static_cast<std::int64_t>(holders_.size()); }
  std::int64_t free() const { return static_cast<std::int64_t>(free_.size()); }

  // A new text with the first `length` tokens of the pages of `table`, which it holds as well;
  // length <= table.size() * kCachePage. Returns its number, the lowest that no text has.
  std::int64_t add_text(std::span<const std::int32_t> table, std::int64_t length);
  void remove_text(std::int64_t text);
  std::int64_t length(std::int64_t text) const { return texts_.at(text).length; }
  const std::vector<std::int32_t>& table(std::int64_t text) const { return texts_.at(text).table; }
  // Forgets tokens from `length` on.
  void truncate(std::int64_t text, std::int64_t length);

  // How many free pages it takes to append `tokens` tokens.
  std::int64_t pages_to_append(std::int64_t text, std::int64_t tokens) const;
  // Appends tokens. The text's first pages may be another's; `copies` gets the pages that have to
  // be copied before the new tokens are written: from, to. Asserts that there are enough pages.
  void append(std::int64_t text, std::int64_t tokens,
              std::vector<std::pair<std::int32_t, std::int32_t>>& copies);

  // One more holder of a page, which is not a text; one fewer.
  void hold(std::int32_t page) { ++holders_.at(static_cast<std::size_t>(page)); }
  void release(std::int32_t page);
  std::int64_t holders(std::int32_t page) const {
    return holders_.at(static_cast<std::size_t>(page));
  }

 private:
  struct Text {
    std::vector<std::int32_t> table;
    std::int64_t length = 0;
  };
  std::int32_t take_free();

  std::map<std::int64_t, Text> texts_;
  std::vector<std::int64_t> holders_;  // of each page
  std::vector<std::int32_t> free_;     // the next one is the last
};

}  // namespace piton
