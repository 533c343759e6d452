#include "text/models/bpe_merger.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "support/sampled.h"
#include "text/models/bpe_model.h"
#include "text/models/word_cache.h"

namespace piton {
namespace {

// The definition, word for word: again and again the lowest order, the leftmost of equals.
std::vector<std::int32_t> merge_plainly(const std::vector<MergeRule>& rules,
                                        std::vector<std::int32_t> symbols) {
  while (true) {
    const MergeRule* best = nullptr;
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (const MergeRule& rule : rules) {
        if (rule.left == symbols[i] && rule.right == symbols[i + 1] &&
            (best == nullptr || rule.order < best->order)) {
          best = &rule;
          best_at = i;
        }
      }
    }
    if (best == nullptr) return symbols;
    symbols[best_at] = best->result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

using Symbols = std::vector<std::int32_t>;

Symbols random_word(std::mt19937& random, std::size_t length, std::int32_t alphabet) {
  Symbols symbols(length);
  for (auto& symbol : symbols)
    symbol = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(alphabet));
  return symbols;
}

std::vector<MergeRule> of_different_pairs(const std::vector<MergeRule>& rules) {
  std::vector<MergeRule> unique;
  for (const MergeRule& rule : rules) {
    bool known = false;
    for (const MergeRule& u : unique) known |= u.left == rule.left && u.right == rule.right;
    if (!known) unique.push_back(rule);
  }
  return unique;
}

// Merges words of many lengths; returns how many of them were not merged but encoded by their
// tokens.
int expect_definition(const std::vector<MergeRule>& rules, std::mt19937& random,
                      std::int32_t alphabet) {
  const BpeRules both(rules);
  BpeMerger merger(both);
  BpeTokens::Scratch scratch;
  int encoded = 0;
  for (const std::size_t length : {1, 2, 3, 7, 12, 13, 40, 64, 65, 300}) {
    const Symbols word = random_word(random, length, alphabet);
    const Symbols wanted = merge_plainly(rules, word);
    Symbols merged = word;
    merged.resize(merger.merge(merged.data(), merged.size()));
    EXPECT_EQ(merged, wanted) << "length " << length;
    Symbols by_tokens = word;
    if (const std::size_t left = both.tokens.encode(by_tokens.data(), length, scratch); left != 0) {
      by_tokens.resize(left);
      EXPECT_EQ(by_tokens, wanted) << "length " << length;
      ++encoded;
    } else {
      EXPECT_EQ(by_tokens, word);
    }
  }
  return encoded;
}

TEST(BpeMerger, RulesInAnyOrderMergeAsDefined) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300 && !testing::Test::HasFailure(); ++trial) {
    // Orders are shuffled and some of them equal: merges that enable an earlier one are frequent.
    std::vector<MergeRule> rules;
    std::int32_t next = 4;
    for (int i = 0; i < 12; ++i) {
      const auto left = static_cast<std::int32_t>(random() % next);
      const auto right = static_cast<std::int32_t>(random() % next);
      rules.push_back({left, right, next++, static_cast<std::uint32_t>(random() % 10)});
    }
    expect_definition(of_different_pairs(rules), random, 4);
  }
}

TEST(BpeMerger, TrainedRulesNeedNoMerging) {
  std::mt19937 random(8);
  for (int trial = 0; trial < 400 && !testing::Test::HasFailure(); ++trial) {
    // As training makes them: the parts of a token are older than it. Some orders are equal. Of an
    // alphabet of one or two letters, runs and chains are frequent.
    const std::int32_t alphabet = 1 + trial % 4;
    const std::int32_t count = 2 + static_cast<std::int32_t>(random() % 30);
    std::vector<MergeRule> rules;
    std::vector<std::uint32_t> made_at(static_cast<std::size_t>(alphabet), 0);
    for (std::int32_t next = alphabet; next < alphabet + count; ++next) {
      const std::int32_t reach = trial % 3 == 0 ? std::min(next, alphabet + 3) : next;
      const auto left = static_cast<std::int32_t>(random() % reach);
      const auto right = static_cast<std::int32_t>(random() % reach);
      const std::uint32_t order =
          std::max(made_at[left], made_at[right]) + static_cast<std::uint32_t>(random() % 3);
      rules.push_back({left, right, next, order});
      made_at.push_back(order + 1);
    }
    EXPECT_EQ(expect_definition(of_different_pairs(rules), random, alphabet), 10);
  }
}

TEST(BpeMerger, AllSplitsOfAVocabularyMergeAsDefined) {
  std::mt19937 random(9);
  int encoded = 0;
  const int trials = 300 / test::one_of(3);
  for (int trial = 0; trial < trials && !testing::Test::HasFailure(); ++trial) {
    // As SentencePiece and tiktoken have it: every two pieces that spell a third one merge to it,
    // in the order of the third. Most of these rules never fire; pieces come before their parts at
    // times.
    const std::int32_t alphabet = 2 + trial % 2;
    std::vector<std::string> pieces;
    for (std::int32_t i = 0; i < alphabet; ++i) pieces.emplace_back(1, static_cast<char>('a' + i));
    for (int i = 0; i < 40; ++i) {
      std::string piece = pieces[random() % pieces.size()] + pieces[random() % pieces.size()];
      if (std::find(pieces.begin(), pieces.end(), piece) == pieces.end())
        pieces.push_back(std::move(piece));
    }
    if (trial % 4 == 0) std::shuffle(pieces.begin() + alphabet, pieces.end(), random);
    std::vector<MergeRule> rules;
    for (std::size_t left = 0; left < pieces.size(); ++left) {
      for (std::size_t right = 0; right < pieces.size(); ++right) {
        const auto made = std::find(pieces.begin(), pieces.end(), pieces[left] + pieces[right]);
        if (made == pieces.end()) continue;
        const auto id = static_cast<std::int32_t>(made - pieces.begin());
        const auto order = static_cast<std::uint32_t>(trial % 3 == 0 ? id / 3 : id);
        rules.push_back(
            {static_cast<std::int32_t>(left), static_cast<std::int32_t>(right), id, order});
      }
    }
    encoded += expect_definition(rules, random, alphabet);
  }
  EXPECT_GT(encoded, trials);
}

TEST(BpeMerger, SymbolsWithoutRulesStandAlone) {
  const std::vector<MergeRule> rules = {{0, 1, 10, 0}, {10, 10, 11, 1}, {1, 0, 12, 2}};
  const BpeRules both(rules);
  BpeMerger merger(both);
  Symbols word = {7, 0, 1, 0, 1, 99, 1, 0, 1, 7, 1, 0, 7, 7, 0, 1};
  const Symbols wanted = merge_plainly(rules, word);
  word.resize(merger.merge(word.data(), word.size()));
  EXPECT_EQ(word, wanted);
}

TEST(BpeMerger, WhatARuleMakesMayStandInAWord) {
  std::mt19937 random(10);
  const std::vector<MergeRule> rules = {{0, 0, 1, 0}, {1, 1, 2, 1}, {1, 0, 3, 2}};
  EXPECT_LT(expect_definition(rules, random, 4), 10);
}

// Then the leftmost pair decides, which a search among tokens does not see: such words are merged.
TEST(BpeMerger, RulesOfTheOrderOfTheirPartsAreMerged) {
  const auto expect_merged = [](const std::vector<MergeRule>& rules, const Symbols& word,
                                const Symbols& wanted) {
    ASSERT_EQ(merge_plainly(rules, word), wanted);
    const BpeRules both(rules);
    BpeTokens::Scratch scratch;
    Symbols symbols = word;
    EXPECT_EQ(both.tokens.encode(symbols.data(), symbols.size(), scratch), 0U);
    EXPECT_EQ(symbols, word);
    BpeMerger merger(both);
    symbols.resize(merger.merge(symbols.data(), symbols.size()));
    EXPECT_EQ(symbols, wanted);
  };
  // (01)(23) would be one token, but (01)2 comes before.
  expect_merged({{0, 1, 10, 0}, {10, 2, 11, 0}, {2, 3, 12, 0}, {10, 12, 13, 1}}, {0, 1, 2, 3},
                {11, 3});
  expect_merged({{3, 4, 10, 0}, {2, 10, 11, 0}}, {2, 3, 4}, {11});
}

TEST(BpeMerger, LongRunsStayLinear) {
  // a, aa, aaaa, ...: a quadratic way would take minutes.
  std::vector<MergeRule> rules;
  for (std::int32_t i = 0; i < 8; ++i)
    rules.push_back({i, i, i + 1, static_cast<std::uint32_t>(i)});
  const BpeRules both(rules);
  BpeMerger merger(both);
  Symbols word(3'000'003, 0);
  word.resize(merger.merge(word.data(), word.size()));
  Symbols wanted(3'000'003 / 256, 8);
  for (std::int32_t bit = 7; bit >= 0; --bit) {
    if ((3'000'003 >> bit & 1) != 0) wanted.push_back(bit);
  }
  EXPECT_EQ(word, wanted);
}

TEST(MergeTable, TheLaterOfTwoRulesForAPairStands) {
  const MergeTable table(std::vector<MergeRule>{{1, 2, 3, 0}, {1, 2, 4, 1}});
  EXPECT_EQ(table.find(1, 2).result, 4);
  EXPECT_EQ(table.find(2, 1).order, MergeTable::kNone);
}

// Then no run of unknown characters, which is one token, can be cut in two.
TEST(BpeModel, CutsTextsWhereEveryByteHasAToken) {
  BpeFacts facts{.vocabulary = {{"<unk>", 0}},
                 .unknown = "<unk>",
                 .fuse_unknown = true,
                 .byte_fallback = true};
  for (std::int32_t byte = 0; byte < 256; ++byte)
    facts.vocabulary.emplace_back(fmt::format("<0x{:02X}>", byte), 1 + byte);
  EXPECT_TRUE(BpeModel(facts, "test").has_parts());
  facts.vocabulary.pop_back();
  EXPECT_FALSE(BpeModel(facts, "test").has_parts());
}

TEST(WordCache, HasPlacesOfTheirOwnForMostShortWords) {
  WordCache cache;
  std::set<const void*> places;
  for (int i = 0; i < 1000; ++i) {
    // The first eight bytes are the same.
    const std::string word = fmt::format("the word{:04}", i);
    places.insert(&cache.short_line(WordCache::short_key(word, word.size())));
  }
  EXPECT_GT(places.size(), 800U);
}

TEST(WordCache, HasPlacesOfTheirOwnForMostLongWords) {
  WordCache cache;
  std::set<const void*> places;
  for (int i = 0; i < 1000; ++i) {
    std::uint64_t key[4];
    places.insert(&cache.long_slot(fmt::format("a long word, number {}", i), key));
  }
  EXPECT_GT(places.size(), 800U);
}

}  // namespace
}  // namespace piton
