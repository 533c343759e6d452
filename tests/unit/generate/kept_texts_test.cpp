// Which texts are found, and which are forgotten first. Caches here have no layers.
#include "generate/kept_texts.h"

#include <gtest/gtest.h>

#include "support/host_machine.h"

namespace piton {
namespace {

using Ids = std::vector<std::int32_t>;

struct Kept : test::HostMachine {
  Kept() { cache.pages().grow(8); }
  // Keeps a text of these tokens that has ended; one page each.
  void keep(const Ids& ids, std::optional<std::int64_t> adapter = {}) {
    const std::int64_t text = cache.pages().add_text({}, 0);
    std::vector<std::pair<std::int32_t, std::int32_t>> copies;
    cache.pages().append(text, std::ssize(ids), copies);
    texts.keep_ended(text, ids, adapter);
  }
  // Tokens of the text that is found.
  std::int64_t found(const Ids& ids, std::optional<std::int64_t> adapter = {}) {
    const std::optional<std::int64_t> text = texts.find(ids, adapter);
    return text ? cache.pages().length(*text) : 0;
  }

  KvCache cache{arena};
  KeptTexts texts{cache, 3};
};

TEST(KeptTexts, TheLongestThatBeginsATextIsFound) {
  Kept kept;
  kept.keep({1, 2});
  kept.keep({1, 2, 3, 4});
  EXPECT_EQ(kept.found({1, 2, 3, 4}), 4);
  EXPECT_EQ(kept.found({1, 2, 3, 4, 5}), 4);
  EXPECT_EQ(kept.found({1, 2, 3, 5}), 2) << "a part of a text is no beginning";
  EXPECT_EQ(kept.found({2, 3}), 0);
  EXPECT_EQ(kept.texts.common(Ids{1, 2, 3}, {}), 2);
}

TEST(KeptTexts, AdaptersHaveTextsOfTheirOwn) {
  Kept kept;
  kept.keep({1, 2}, 0);
  EXPECT_EQ(kept.found({1, 2, 3}), 0);
  EXPECT_EQ(kept.found({1, 2, 3}, 1), 0);
  EXPECT_EQ(kept.found({1, 2, 3}, 0), 2);
}

TEST(KeptTexts, TheOneUsedLeastRecentlyIsForgotten) {
  Kept kept;
  for (const std::int32_t id : {1, 2, 3}) kept.keep({id});
  EXPECT_EQ(kept.found({1}), 1);
  kept.keep({2});  // a use: it is there already
  EXPECT_EQ(kept.cache.pages().free(), 5);
  kept.keep({4});
  EXPECT_EQ(kept.found({3}), 0);
  EXPECT_EQ(kept.found({1}) + kept.found({2}) + kept.found({4}), 3);
  kept.texts.evict(6);
  EXPECT_EQ(kept.found({1}), 0);
  EXPECT_EQ(kept.found({2}), 1);
  kept.texts.evict(100);
  EXPECT_EQ(kept.cache.pages().free(), 8);
}

TEST(KeptTexts, ACopyIsKeptWhileItsTextGoesOn) {
  Kept kept;
  const std::int64_t text = kept.cache.pages().add_text({}, 0);
  std::vector<std::pair<std::int32_t, std::int32_t>> copies;
  kept.cache.pages().append(text, 2, copies);
  kept.texts.keep_copy(text, Ids{5, 6}, {});
  kept.cache.pages().append(text, 1, copies);
  EXPECT_EQ(copies.size(), 1U);
  EXPECT_EQ(kept.found({5, 6, 7}), 2);
  kept.cache.pages().remove_text(text);
  EXPECT_EQ(kept.found({5, 6, 7}), 2);
}

}  // namespace
}  // namespace piton
