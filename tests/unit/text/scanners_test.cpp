#include "text/unicode/scanners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>

#include "support/errors.h"
#include "text/steps/pre_tokenizers.h"
#include "text/unicode/characters.h"
#include "text/unicode/pattern.h"

namespace piton {
namespace {

// The same expressions in the general matcher.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::vector<std::string> scanned(const Scanner& scanner, const CharacterTable& table,
                                 std::string_view text) {
  std::vector<std::string> words;
  scan_words(scanner, table, text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

std::vector<std::string> matched(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> words;
  for (const auto& [begin, end] : pattern.matches(text)) {
    words.emplace_back(text.substr(begin, end - begin));
  }
  return words;
}

TEST(Scanners, EqualTheirExpressionsOnRandomTexts) {
  const CharacterTable table;
  std::mt19937 random(3);
  const std::vector<std::string> kParts = {
      "a",  "B",  "'", "s", "ll",     "RE",     " ", "  ", "\n",   "\r",     "\t", "1", "23",
      "中", "。", "½", "é", "\u0301", "\u00a0", "ſ", "!",  "🦙", "\u3000", "V",  "e", "D"};
  for (const std::string_view expression : {kGpt2, kLlama3, kQwen35}) {
    const auto scanner = Scanner::for_pattern(expression);
    ASSERT_TRUE(scanner.has_value());
    const Pattern pattern(expression, "test");
    for (int trial = 0; trial < 20000; ++trial) {
      std::string text;
      for (int n = static_cast<int>(random() % 14); n >= 0; --n) {
        text += kParts[random() % kParts.size()];
      }
      ASSERT_EQ(scanned(*scanner, table, text), matched(pattern, text)) << text;
    }
  }
}

TEST(Scanners, CoverTextsThatAreNotUtf8) {
  const CharacterTable table;
  for (const auto kind : {Scanner::Kind::kGpt2, Scanner::Kind::kCl100k, Scanner::Kind::kBloom}) {
    std::mt19937 random(5);
    for (int trial = 0; trial < 2000; ++trial) {
      std::string text;
      for (int n = 0; n < 30; ++n) text.push_back(static_cast<char>(random()));
      std::string joined;
      scan_words({kind, 3}, table, text, [&](std::string_view word) { joined += word; });
      ASSERT_EQ(joined, text);
    }
  }
}

TEST(Scanners, GiveTheExpressionThatTheyWereMadeOf) {
  for (const std::string_view expression : {kGpt2, kLlama3, kQwen35})
    EXPECT_EQ(Scanner::for_pattern(expression)->pattern(), expression);
}

TEST(Scanners, AreNotChosenForOtherExpressions) {
  EXPECT_FALSE(Scanner::for_pattern(R"(\p{L}+)").has_value());
  EXPECT_FALSE(Scanner::for_pattern("").has_value());
}

// Oniguruma 6.9 through `tokenizers` 0.23 gives these; PCRE2's own classes would not.
TEST(Pattern, ReadsClassesAsTheFilesDialectDoes) {
  const auto words = [](std::string_view expression, std::string_view text) {
    return matched(Pattern(expression, "test"), text);
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(words(R"(\p{N}{1,3}(?=(?:\p{N}{3})*\b))", "123\u2463"), (Words{"123"}));
  EXPECT_EQ(words(R"(\w+)", "e\u0301_\u00BDa\u2463"), (Words{"e\u0301_\u00BDa"}));
  EXPECT_EQ(words(R"([\w]+)", "\u00BDb\u203F"), (Words{"b\u203F"}));
  EXPECT_EQ(words(R"(\W+)", "a\u00BD\u2463e\u0301 "), (Words{"\u2463", " "}));
  EXPECT_EQ(words(R"(\s+|[^\s]+)", "a\u180E\u0085b"), (Words{"a\u180E", "\u0085", "b"}));
  EXPECT_EQ(words(R"(\S+)", "a\u180E b"), (Words{"a\u180E", "b"}));
  EXPECT_EQ(words(R"(.\B)", "ab\u2463"), (Words{"a", "\u2463"}));
  EXPECT_EQ(words(R"([[:alpha:]]+)", "a\u2163\u00BD"), (Words{"a\u2163"}));
  EXPECT_EQ(words(R"([]\w]+)", "a]\u00BD"), (Words{"a]"}));
}

TEST(Pattern, RefusesABackslashWithNothingBehind) {
  EXPECT_THAT(message_of(Fault::kData, [&] { Pattern("a\\", "test"); }),
              testing::HasSubstr("does not compile: \\ at end of pattern"));
}

// In Oniguruma "[b]" is a class of its own here, whatever follows.
TEST(Pattern, RefusesAClassInsideAClass) {
  for (const char* expression :
       {"[a[b]]", "[a[b]:]", "[[b][:alpha:]]", "[a&&b]", "[[:alpha:][b]]"}) {
    EXPECT_THAT(message_of(Fault::kData, [&] { Pattern(expression, "test"); }),
                testing::HasSubstr("has a class inside a class"))
        << expression;
  }
}

TEST(Scanners, BertCutsAtWhiteSpaceAndPunctuation) {
  const CharacterTable table;
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  steps.push_back(make_whitespace_split());
  steps.push_back(make_punctuation(SplitBehavior::kIsolated));
  const auto plain = make_sequence(std::move(steps));
  const std::u32string characters =
      U"ab1 \t\n$+~.,'-\u00A0\u3000\u00BF\u3002\u4E2D\u00A3\u20AC\u2E52\u0301\U0001F600";
  std::mt19937 random(5);
  for (int trial = 0; trial < 5000; ++trial) {
    std::string text;
    for (std::size_t i = random() % 20; i > 0; --i)
      append_utf8(characters[random() % characters.size()], text);
    Words words;
    words.text = text;
    words.ranges = {{0, text.size()}};
    plain->apply(words, true);
    std::vector<std::string> wanted;
    for (std::size_t i = 0; i < words.ranges.size(); ++i) wanted.emplace_back(words.word(i));
    ASSERT_EQ(scanned({Scanner::Kind::kBert, 0}, table, text), wanted) << text;
  }
}

// Unicode's property White_Space.
TEST(Characters, OfWhiteSpaceAreThoseOfUnicode) {
  const std::u32string wanted =
      U"\t\n\v\f\r \u0085\u00A0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
      U"\u2009\u200A\u2028\u2029\u202F\u205F\u3000";
  std::u32string found;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (is_white_space(c)) found += c;
  }
  EXPECT_TRUE(found == wanted) << found.size() << " characters";
}

TEST(Split, JoinsDelimitersThatFollowOneAnother) {
  const auto split = make_split(std::string("-"), SplitBehavior::kContiguous, /*invert=*/false);
  std::vector<std::string> wanted;
  Words words;
  for (std::size_t count = 0; count < 20; ++count) {
    wanted.push_back(count % 2 == 0 ? "ab" : std::string(1 + count % 3, '-'));
    words.text += wanted.back();
    words.ranges = {{0, words.text.size()}};
    split->apply(words, true);
    std::vector<std::string> got;
    for (std::size_t i = 0; i < words.ranges.size(); ++i) got.emplace_back(words.word(i));
    EXPECT_EQ(got, wanted);
  }
}

}  // namespace
}  // namespace piton
