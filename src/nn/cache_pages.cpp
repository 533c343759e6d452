#include "nn/cache_pages.h"

#include "base/error.h"

namespace piton {

void CachePages::grow(std::int64_t pages) {
  PITON_ASSERT(pages >= size(), "{} pages cannot become {}", size(), pages);
  // Lower pages are taken first.
  std::vector<std::int32_t> added;
  for (std::int64_t page = pages; page-- > size();)
    added.push_back(static_cast<std::int32_t>(page));
  free_.insert(free_.begin(), added.begin(), added.end());
  holders_.resize(static_cast<std::size_t>(pages), 0);
}

std::int64_t CachePages::add_text(std::span<const std::int32_t> table, std::int64_t length) {
  PITON_ASSERT(length >= 0 && pages_of(length) <= std::ssize(table), "{} tokens in {} pages",
               length, table.size());
  std::int64_t number = 0;
  for (const auto& [taken, text] : texts_) {
    if (taken != number) break;
    ++number;
  }
  Text& text = texts_[number];
  text.length = length;
  for (const std::int32_t page : table.first(static_cast<std::size_t>(pages_of(length)))) {
    hold(page);
    text.table.push_back(page);
  }
  return number;
}

void CachePages::remove_text(std::int64_t text) {
  truncate(text, 0);
  texts_.erase(text);
}

void CachePages::truncate(std::int64_t text, std::int64_t length) {
  Text& one = texts_.at(text);
  PITON_ASSERT(length >= 0 && length <= one.length, "cannot set a text of {} tokens to {}",
               one.length, length);
  while (std::ssize(one.table) > pages_of(length)) {
    release(one.table.back());
    one.table.pop_back();
  }
  one.length = length;
}

std::int64_t CachePages::pages_to_append(std::int64_t text, std::int64_t tokens) const {
  const Text& one = texts_.at(text);
  const bool copies = tokens > 0 && one.length % kCachePage != 0 && holders(one.table.back()) > 1;
  return pages_of(one.length + tokens) - std::ssize(one.table) + (copies ? 1 : 0);
}

void CachePages::append(std::int64_t text, std::int64_t tokens,
                        std::vector<std::pair<std::int32_t, std::int32_t>>& copies) {
  PITON_ASSERT(pages_to_append(text, tokens) <= free(), "{} tokens need {} pages, and {} are free",
               tokens, pages_to_append(text, tokens), free());
  Text& one = texts_.at(text);
  if (tokens > 0 && one.length % kCachePage != 0 && holders(one.table.back()) > 1) {
    const std::int32_t shared = one.table.back();
    one.table.back() = take_free();
    copies.emplace_back(shared, one.table.back());
    release(shared);
  }
  one.length += tokens;
  while (std::ssize(one.table) < pages_of(one.length)) one.table.push_back(take_free());
}

void CachePages::release(std::int32_t page) {
  std::int64_t& holders = holders_.at(static_cast<std::size_t>(page));
  PITON_ASSERT(holders > 0, "page {} is held by none", page);
  if (--holders == 0) free_.push_back(page);
}

std::int32_t CachePages::take_free() {
  const std::int32_t page = free_.back();
  free_.pop_back();
  hold(page);
  return page;
}

}  // namespace piton
