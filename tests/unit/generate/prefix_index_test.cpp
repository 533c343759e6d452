// Beginnings of texts are found page by page, and forgotten from their ends.
#include "generate/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace piton {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::int32_t> tokens(std::int64_t pages, std::int32_t first = 0) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < pages * kCachePage; ++i)
    ids.push_back(first + static_cast<std::int32_t>(i));
  return ids;
}

// Adds a text of whole pages and removes it from the cache.
void add(PrefixIndex& index, CachePages& pages, const std::vector<std::int32_t>& ids) {
  std::vector<std::pair<std::int32_t, std::int32_t>> copies;
  const std::int64_t text = pages.add_text({}, 0);
  pages.append(text, std::ssize(ids), copies);
  std::int64_t node = PrefixIndex::kRoot;
  for (std::size_t page = 0; page < pages.table(text).size(); ++page) {
    const auto next = index.add(node, std::span(ids).subspan(page * kCachePage, kCachePage),
                                pages.table(text)[page]);
    if (!next) break;
    node = *next;
  }
  pages.remove_text(text);
}

TEST(PrefixIndex, FindsTheLongestBeginning) {
  CachePages pages;
  pages.grow(10);
  PrefixIndex index(pages);
  add(index, pages, tokens(3));
  EXPECT_EQ(pages.free(), 7);
  EXPECT_THAT(index.find(tokens(3)).pages, ElementsAre(0, 1, 2));
  std::vector<std::int32_t> other = tokens(3);
  other[130] = -1;  // in the third page
  EXPECT_THAT(index.find(other).pages, ElementsAre(0, 1, 2));
  EXPECT_EQ(index.find(other).tokens, 130);
  other.resize(127);
  EXPECT_THAT(index.find(other).pages, ElementsAre(0, 1));
  EXPECT_EQ(index.find(other).tokens, 127);
  EXPECT_THAT(index.find(tokens(1, 64)).pages, IsEmpty()) << "the same page after another one";
}

// The end of a text is a page too; of several the one that has most in common is found.
TEST(PrefixIndex, FindsPartsOfPages) {
  CachePages pages;
  pages.grow(10);
  PrefixIndex index(pages);
  std::vector<std::int32_t> end = tokens(1, 70);
  end.resize(20);
  const auto add_end = [&](std::int32_t first_changed) {
    std::vector<std::int32_t> ids = end;
    for (std::size_t i = static_cast<std::size_t>(first_changed); i < ids.size(); ++i)
      ids[i] = 1000 + first_changed;
    std::vector<std::pair<std::int32_t, std::int32_t>> copies;
    const std::int64_t text = pages.add_text({}, 0);
    pages.append(text, std::ssize(ids), copies);
    const std::int32_t page = pages.table(text)[0];
    index.add(PrefixIndex::kRoot, ids, page);
    pages.remove_text(text);
    return page;
  };
  const std::int32_t whole = add_end(20);
  const std::int32_t five = add_end(5);
  const std::int32_t twelve = add_end(12);
  EXPECT_EQ(pages.free(), 7);
  std::vector<std::int32_t> ids = tokens(1, 70);
  EXPECT_THAT(index.find(ids).pages, ElementsAre(whole));
  EXPECT_EQ(index.find(ids).tokens, 20);
  EXPECT_EQ(index.find(ids).node, PrefixIndex::kRoot);
  ids[12] = 1012;
  EXPECT_THAT(index.find(ids).pages, ElementsAre(twelve));
  EXPECT_EQ(index.find(ids).tokens, 13);
  ids[5] = 1005;
  EXPECT_THAT(index.find(ids).pages, ElementsAre(five));
  EXPECT_EQ(index.find(ids).tokens, 6);
  EXPECT_EQ(index.find(std::vector<std::int32_t>{1, 2}).tokens, 0);
  add_end(20);  // known already
  EXPECT_EQ(pages.free(), 7);
}

TEST(PrefixIndex, KeepsTheFirstOfTwoEqualPages) {
  CachePages pages;
  pages.grow(10);
  PrefixIndex index(pages);
  add(index, pages, tokens(2));
  add(index, pages, tokens(2));
  EXPECT_EQ(pages.free(), 8);
  EXPECT_THAT(index.find(tokens(2)).pages, ElementsAre(0, 1));
}

TEST(PrefixIndex, ForgetsWhatWasUsedLeastRecently) {
  CachePages pages;
  pages.grow(6);
  PrefixIndex index(pages);
  add(index, pages, tokens(2));
  add(index, pages, tokens(2, 5000));
  index.find(tokens(1));  // of the first text the first page
  index.evict(3);
  EXPECT_EQ(pages.free(), 3);
  EXPECT_THAT(index.find(tokens(2)).pages, ElementsAre(0)) << "the second page was older";
  EXPECT_THAT(index.find(tokens(2, 5000)).pages, ElementsAre(2, 3));
  index.evict(6);
  EXPECT_EQ(pages.free(), 6);
  EXPECT_THAT(index.find(tokens(2, 5000)).pages, IsEmpty());
}

TEST(PrefixIndex, KeepsPagesThatTextsHold) {
  CachePages pages;
  pages.grow(2);
  PrefixIndex index(pages);
  add(index, pages, tokens(2));
  const std::int64_t text = pages.add_text(index.find(tokens(1)).pages, kCachePage);
  index.evict(2);
  EXPECT_EQ(pages.free(), 1);
  EXPECT_THAT(index.find(tokens(2)).pages, ElementsAre(0));
  pages.remove_text(text);
  index.evict(2);
  EXPECT_EQ(pages.free(), 2);
}

}  // namespace
}  // namespace piton
