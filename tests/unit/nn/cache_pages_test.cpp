// Pages are shared, copied before they are written, and free when nobody holds them.
#include "nn/cache_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace piton {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

using Copies = std::vector<std::pair<std::int32_t, std::int32_t>>;

TEST(CachePages, GoToTextsAsTheyGrow) {
  CachePages pages;
  pages.grow(3);
  EXPECT_EQ(pages.add_text({}, 0), 0);
  Copies copies;
  pages.append(0, 64, copies);
  EXPECT_THAT(pages.table(0), ElementsAre(0));
  EXPECT_EQ(pages.pages_to_append(0, 1), 1);
  pages.append(0, 1, copies);
  EXPECT_EQ(pages.pages_to_append(0, 63), 0);
  EXPECT_THAT(pages.table(0), ElementsAre(0, 1));
  EXPECT_EQ(pages.free(), 1);
  pages.truncate(0, 64);
  EXPECT_EQ(pages.free(), 2);
  pages.grow(5);
  EXPECT_EQ(pages.free(), 4);
  pages.remove_text(0);
  EXPECT_EQ(pages.free(), 5);
  EXPECT_THAT(copies, IsEmpty());
}

TEST(CachePages, OfTwoTextsAreCopiedBeforeOneAppends) {
  CachePages pages;
  pages.grow(5);
  Copies copies;
  pages.add_text({}, 0);
  pages.append(0, 70, copies);
  ASSERT_EQ(pages.add_text(pages.table(0), 70), 1);
  EXPECT_EQ(pages.free(), 3);
  EXPECT_EQ(pages.pages_to_append(1, 1), 1);
  pages.append(1, 1, copies);
  EXPECT_THAT(copies, ElementsAre(Pair(1, 2)));
  EXPECT_THAT(pages.table(1), ElementsAre(0, 2));
  EXPECT_EQ(pages.length(0), 70);
  // The page now has one holder again.
  EXPECT_EQ(pages.pages_to_append(0, 1), 0);
  pages.remove_text(0);
  EXPECT_EQ(pages.free(), 3);
  EXPECT_EQ(pages.add_text({}, 0), 0);  // the lowest free number
}

TEST(CachePages, ThatAreWholeAreSharedWithoutACopy) {
  CachePages pages;
  pages.grow(4);
  Copies copies;
  pages.add_text({}, 0);
  pages.append(0, 100, copies);
  ASSERT_EQ(pages.add_text(pages.table(0), 64), 1);
  pages.append(1, 36, copies);
  EXPECT_THAT(copies, IsEmpty());
  EXPECT_THAT(pages.table(1), ElementsAre(0, 2));
}

TEST(CachePages, StayWhileSomebodyHoldsThem) {
  CachePages pages;
  pages.grow(1);
  Copies copies;
  pages.add_text({}, 0);
  pages.append(0, 64, copies);
  pages.hold(0);
  pages.remove_text(0);
  EXPECT_EQ(pages.free(), 0);
  EXPECT_EQ(pages.holders(0), 1);
  pages.release(0);
  EXPECT_EQ(pages.free(), 1);
}

TEST(CachePagesDeathTest, AreNotGivenTwice) {
  CachePages pages;
  pages.grow(1);
  Copies copies;
  pages.add_text({}, 0);
  EXPECT_DEATH(pages.append(0, 65, copies), "65 tokens need 2 pages, and 1 are free");
  EXPECT_DEATH(pages.release(0), "page 0 is held by none");
  EXPECT_DEATH(pages.truncate(0, 1), "cannot set a text of 0 tokens to 1");
}

}  // namespace
}  // namespace piton
