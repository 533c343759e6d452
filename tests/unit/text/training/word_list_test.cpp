#include "text/training/word_list.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace piton {
namespace {

std::vector<std::uint32_t> all_of(const WordList& list) {
  return {list.words().begin(), list.words().end()};
}

TEST(WordList, KeepsWordsInItselfAndElsewhere) {
  WordList list;
  std::vector<std::uint32_t> wanted;
  for (std::uint32_t word = 0; word < 100; ++word) {
    list.append_once(word);
    list.append_once(word);
    wanted.push_back(word);
    ASSERT_EQ(all_of(list), wanted);
  }
}

TEST(WordList, AppendsRuns) {
  const std::vector<std::uint32_t> run{5, 6, 7};
  WordList list;
  list.append(1);
  list.append(run);  // all that it holds in itself
  EXPECT_EQ(all_of(list), (std::vector<std::uint32_t>{1, 5, 6, 7}));
  list.append(run);
  EXPECT_EQ(all_of(list), (std::vector<std::uint32_t>{1, 5, 6, 7, 5, 6, 7}));
}

TEST(WordList, SortsAndDropsRepetitions) {
  WordList list;
  for (const std::uint32_t word : {4U, 2U, 9U, 2U, 4U, 4U}) list.append(word);
  list.sort();
  EXPECT_EQ(all_of(list), (std::vector<std::uint32_t>{2, 4, 9}));
}

TEST(WordList, MovesShortAndLongLists) {
  for (const std::uint32_t count : {2U, 50U}) {
    WordList list;
    for (std::uint32_t word = 0; word < count; ++word) list.append(word);
    WordList moved = std::move(list);
    EXPECT_EQ(moved.size(), count);
    WordList other;
    other.append(7);
    other = std::move(moved);
    ASSERT_EQ(other.size(), count);
    EXPECT_EQ(other.words()[count - 1], count - 1);
  }
}

}  // namespace
}  // namespace piton
