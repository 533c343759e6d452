// Parts of training against slow and plain ways to get the same.
#include "text/training/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "text/training/pair_counts.h"
#include "text/training/remembered_lattices.h"
#include "text/training/repeated_substrings.h"
#include "text/training/unigram_lattice.h"
#include "text/training/unigram_trainer.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<std::string> random_words(int count, const std::vector<std::string>& letters,
                                      std::size_t longest, std::mt19937& random) {
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) {
    std::string word;
    const std::size_t length = 1 + random() % longest;
    for (std::size_t c = 0; c < length; ++c) word += letters[random() % letters.size()];
    words.push_back(word);
  }
  return words;
}

WordCounts counts_of(const std::vector<std::string>& words) {
  WordCounts counts;
  for (const std::string& word : words) counts.add(word);
  return counts;
}

TEST(WordCounts, AreThoseOfAMap) {
  std::mt19937 random(1);
  const auto words = random_words(20000, {"a", "b", "é", "\n", " "}, 6, random);
  std::map<std::string, std::int64_t> wanted;
  WordCounts odd;
  WordCounts even;
  for (std::size_t i = 0; i < words.size(); ++i) {
    (i % 2 == 0 ? even : odd).add(words[i]);
    ++wanted[words[i]];
  }
  even.add(odd);
  std::map<std::string, std::int64_t> got;
  std::string last;
  for (const CountedWord& word : even.sorted()) {
    EXPECT_LT(last, word.text);
    last = word.text;
    got[last] = word.count;
  }
  EXPECT_EQ(got, wanted);
}

TEST(WordCounts, KeepWordsLongerThanABlockOfTheirMemory) {
  WordCounts counts;
  const std::string longer(3 << 20, 'x');
  counts.add(longer);
  counts.add("y");
  counts.add(longer, 4);
  const auto words = counts.sorted();
  ASSERT_EQ(words.size(), 2U);
  EXPECT_EQ(words[0].text, longer);
  EXPECT_EQ(words[0].count, 5);
}

TEST(PairCounts, HoldManyPairs) {
  PairCounts counts;
  for (std::int32_t left = 0; left < 300; ++left) {
    for (std::int32_t right = 0; right < 300; ++right) {
      counts.at(pair_of(left, right)).count += left * 1000 + right;
    }
  }
  std::int64_t pairs = 0;
  counts.each([&](const PairCounts::Slot& slot) {
    EXPECT_EQ(slot.count, left_of(slot.pair) * 1000 + right_of(slot.pair));
    ++pairs;
  });
  EXPECT_EQ(pairs, 90000);
  EXPECT_EQ(counts.count(pair_of(299, 7)), 299007);
  EXPECT_EQ(counts.count(pair_of(7, 300)), 0);
}

// All substrings of a word, with the character behind each; "" at the end.
void each_substring(const std::string& word, std::size_t longest,
                    const std::function<void(const std::string&, const std::string&)>& use) {
  std::vector<std::string> characters;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = decode_utf8(word, at).length;
    characters.push_back(word.substr(at, length));
    at += length;
  }
  for (std::size_t begin = 0; begin < characters.size(); ++begin) {
    std::string text;
    for (std::size_t end = begin; end < characters.size() && end < begin + longest; ++end) {
      text += characters[end];
      if (end > begin) use(text, end + 1 < characters.size() ? characters[end + 1] : "");
    }
  }
}

TEST(RepeatedSubstrings, AreThoseFollowedByDifferentCharacters) {
  std::mt19937 random(2);
  for (const int count : {1, 3, 40, 400}) {
    for (const std::size_t longest : {std::size_t{2}, std::size_t{5}, std::size_t{16}}) {
      const WordCounts counts =
          counts_of(random_words(count, {"a", "b", "é", "語", "😀"}, 24, random));
      const auto words = counts.sorted();
      std::map<std::string, std::pair<std::int64_t, std::set<std::string>>> all;
      for (const CountedWord& word : words) {
        each_substring(std::string(word.text), longest, [&](const auto& text, const auto& next) {
          ++all[text].first;
          all[text].second.insert(next);
        });
      }
      std::vector<std::pair<std::int64_t, std::string>> wanted;  // score, text
      for (const auto& [text, found] : all) {
        const auto length =
            std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
        if (found.second.size() > 1) wanted.emplace_back(found.first * length, text);
      }
      std::sort(wanted.rbegin(), wanted.rend());
      for (const int threads : {1, 4}) {
        ThreadPool pool(threads);
        const auto got =
            repeated_substrings(words, static_cast<std::int64_t>(longest), 1 << 20, pool);
        ASSERT_EQ(got.size(), wanted.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_EQ(got[i].text, wanted[i].second) << i;
          EXPECT_EQ(got[i].places * got[i].characters, wanted[i].first);
        }
        const std::size_t half = wanted.size() / 2;
        EXPECT_EQ(repeated_substrings(words, static_cast<std::int64_t>(longest), half, pool).size(),
                  half);
      }
    }
  }
}

// Every way to cut `word`, as pieces and their summed score. Characters without a piece are piece
// 0.
struct Cutting {
  std::vector<std::int32_t> pieces;
  double score = 0;
};
void all_cuttings(const std::string& word, const UnigramPieces& pieces, Cutting so_far,
                  std::vector<Cutting>& out) {
  if (word.empty()) {
    out.push_back(so_far);
    return;
  }
  const std::size_t character = decode_utf8(word, 0).length;
  bool covered = false;
  const auto go_on = [&](std::int32_t id, std::size_t length, double score) {
    Cutting next = so_far;
    next.pieces.push_back(id);
    next.score += score;
    all_cuttings(word.substr(length), pieces, next, out);
  };
  for (std::size_t id = 1; id < pieces.pieces().size(); ++id) {
    const ScoredPiece& piece = pieces.pieces()[id];
    if (!word.starts_with(piece.text)) continue;
    covered = covered || piece.text.size() == character;
    go_on(static_cast<std::int32_t>(id), piece.text.size(), piece.score);
  }
  if (!covered) go_on(0, character, pieces.unknown_score());
}

TEST(UnigramLattice, WeighsEveryCutting) {
  UnigramPieces pieces({{"", 0},
                        {"a", -2.5},
                        {"b", -3},
                        {"ab", -3.5},
                        {"ba", -4},
                        {"aba", -4.25},
                        {"é", -6},
                        {"bé", -5.5},
                        {"abab", -9}});
  pieces.make_trie();
  std::mt19937 random(3);
  UnigramLattice lattice(pieces);
  for (const std::string& word : random_words(60, {"a", "b", "é", "x"}, 9, random)) {
    std::vector<Cutting> all;
    all_cuttings(word, pieces, {}, all);
    double sum = 0;
    for (const Cutting& one : all) sum += std::exp(one.score);
    std::vector<double> wanted(pieces.pieces().size(), 0);
    const Cutting* best = &all[0];
    for (const Cutting& one : all) {
      for (const std::int32_t id : one.pieces) {
        wanted[static_cast<std::size_t>(id)] += 3 * std::exp(one.score) / sum;
      }
      if (one.score > best->score) best = &one;
    }
    lattice.set(word);
    std::vector<double> got(pieces.pieces().size(), 0);
    lattice.add_expected(3, got);
    for (std::size_t id = 0; id < got.size(); ++id) EXPECT_NEAR(got[id], wanted[id], 1e-12);
    UnigramLattice::Path path;
    lattice.best(/*whole=*/true, path);
    EXPECT_NEAR(path.score, best->score, 1e-12) << word;
    double score = 0;
    for (const std::int32_t id : path.pieces) {
      score +=
          id == 0 ? pieces.unknown_score() : pieces.pieces()[static_cast<std::size_t>(id)].score;
    }
    EXPECT_NEAR(score, path.score, 1e-12);
  }
  lattice.set("ab");
  UnigramLattice::Path path;
  lattice.best(/*whole=*/false, path);
  EXPECT_THAT(path.pieces, ElementsAre(2, 1));
}

TEST(UnigramLattice, TakesTheFirstOfCuttingsThatAreAsGood) {
  UnigramPieces pieces({{"", 0}, {"a", -1}, {"b", -1}, {"ab", -2}});
  pieces.make_trie();
  UnigramLattice lattice(pieces);
  lattice.set("ab");
  UnigramLattice::Path path;
  lattice.best(/*whole=*/true, path);
  EXPECT_THAT(path.pieces, ElementsAre(3));
}

// What is remembered of a word is what a search among the pieces that are left finds, also for the
// words that there was no room for.
TEST(RememberedLattices, FollowTheRemovalOfPieces) {
  UnigramPieces pieces(
      {{"", 0}, {"a", -1}, {"b", -2}, {"ab", -3}, {"ba", -4}, {"aba", -5}, {"é", -6}});
  pieces.make_trie();
  UnigramPieces fewer({{"", 0}, {"aba", -2}, {"é", -2.5}, {"a", -1.5}, {"ba", -3}});
  fewer.make_trie();
  constexpr std::int32_t kRemoved = RememberedLattices::kRemoved;
  const std::vector<std::int32_t> ids = {0, 3, kRemoved, kRemoved, 4, 1, 2};
  std::mt19937 random(5);
  const auto words = random_words(40, {"a", "b", "é", "x"}, 9, random);
  RememberedLattices remembered(200);
  UnigramLattice before(pieces);
  for (std::size_t w = 0; w < words.size(); ++w) remembered.set(w, words[w], before);
  ASSERT_GT(remembered.words(), 5U);
  ASSERT_LT(remembered.words(), words.size());
  remembered.renumber(ids);
  UnigramLattice lattice(fewer);
  UnigramLattice searched(fewer);
  for (std::size_t w = 0; w < words.size(); ++w) {
    remembered.set(w, words[w], lattice);
    searched.set(words[w]);
    std::vector<double> got(5, 0);
    std::vector<double> wanted(5, 0);
    lattice.add_expected(2, got);
    searched.add_expected(2, wanted);
    for (std::size_t id = 0; id < got.size(); ++id)
      EXPECT_NEAR(got[id], wanted[id], 1e-12) << words[w];
  }
}

// The plain algorithm, as long as no pair forms again after its merge.
TEST(BpeTrainer, MergesTheMostFrequentPairAndTheLowestOfEquals) {
  WordCounts counts;
  counts.add("low", 5);
  counts.add("lower", 2);
  counts.add("newest", 6);
  counts.add("widest", 3);
  ThreadPool pool(2);
  const TrainedBpe trained = train_bpe(
      counts.sorted(), {.vocabulary_size = 100, .min_frequency = 6, .first_pieces = {"<s>"}}, pool,
      [](std::int64_t) {});
  // ids: <s> 0, d 1, e 2, i 3, l 4, n 5, o 6, r 7, s 8, t 9, w 10
  std::vector<std::string> learned(trained.pieces.begin() + 11, trained.pieces.end());
  EXPECT_THAT(learned, ElementsAre("es", "est", "lo", "low", "ew", "new", "newest"));
  EXPECT_THAT(trained.merges, ElementsAre(Pair(2, 8), Pair(11, 9), Pair(4, 6), Pair(13, 10),
                                          Pair(2, 10), Pair(5, 15), Pair(16, 12)));
}

TEST(BpeTrainer, CountsPairsThatOverlapOnceAMerge) {
  WordCounts counts;
  counts.add("aaaaa", 10);
  ThreadPool pool(1);
  const TrainedBpe trained = train_bpe(
      counts.sorted(), {.vocabulary_size = 100, .min_frequency = 1}, pool, [](std::int64_t) {});
  EXPECT_THAT(trained.pieces, ElementsAre("a", "aa", "aaa", "aaaaa"));
}

TEST(UnigramTrainer, KeepsCharactersAndWhatIsFrequent) {
  WordCounts counts;
  counts.add("▁the", 1000);
  counts.add("▁then", 400);
  counts.add("▁other", 300);
  counts.add("▁zoo", 1);
  ThreadPool pool(2);
  const auto vocabulary =
      train_unigram(counts.sorted(), {.vocabulary_size = 14, .first_pieces = {"<unk>"}}, pool,
                    [](std::int64_t) {});
  ASSERT_LE(vocabulary.size(), 14U);
  EXPECT_EQ(vocabulary[0].text, "<unk>");
  std::set<std::string> pieces;
  for (const ScoredPiece& piece : vocabulary) pieces.insert(piece.text);
  for (const char* character : {"▁", "t", "h", "e", "n", "o", "r", "z", "▁the"}) {
    EXPECT_TRUE(pieces.contains(character)) << character;
  }
}

}  // namespace
}  // namespace piton
