// Stop words in a text that comes in parts, whatever the parts.
#include "generate/stop_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "text/unicode/utf8.h"

namespace piton {
namespace {

TEST(StopWords, EndTheTextWhereTheFirstOfThemBegins) {
  StopWords stop({"END", "\n\n"});
  EXPECT_EQ(stop.push("a E"), "a ");
  EXPECT_EQ(stop.push("N"), "");
  EXPECT_EQ(stop.push("X\n"), "ENX");
  EXPECT_FALSE(stop.found());
  EXPECT_EQ(stop.push("b\n\nc END"), "\nb");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopWords, WithholdOnlyWhatMayBeginOne) {
  StopWords stop({"aab"});
  EXPECT_EQ(stop.push("aaa"), "a");
  EXPECT_EQ(stop.push("c"), "aac");
  EXPECT_EQ(stop.push("xaa"), "x");
  EXPECT_EQ(stop.finish(), "aa");
  StopWords none({});
  EXPECT_EQ(none.push("text"), "text");
}

// Cut anywhere, the parts are the text up to the word that begins first; characters stay whole.
TEST(StopWords, DoNotDependOnHowTheTextIsCut) {
  std::mt19937 random(1);
  const std::vector<std::string> letters = {"a", "b", "é", "語"};
  const std::vector<std::string> words = {"ab語", "éé", "ba"};
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> text;
    std::string whole;
    for (std::size_t i = 0; i < 12; ++i) {
      text.push_back(letters[random() % letters.size()]);
      whole += text.back();
    }
    std::size_t first = whole.size();
    for (const std::string& word : words) first = std::min(first, whole.find(word));
    StopWords stop(words);
    std::string got;
    for (std::size_t i = 0; i < text.size() && !stop.found();) {
      std::string part;
      for (std::size_t n = 1 + random() % 4; n > 0 && i < text.size(); --n) part += text[i++];
      const std::string shown = stop.push(part);
      EXPECT_EQ(valid_utf8_prefix(shown), shown.size());
      got += shown;
    }
    if (!stop.found()) got += stop.finish();
    // A part may hold two words: the one that begins first counts, as in the whole.
    const bool has = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return whole.find(word) != std::string::npos;
    });
    EXPECT_EQ(stop.found(), has) << whole;
    EXPECT_EQ(got, whole.substr(0, first)) << whole;
  }
}

}  // namespace
}  // namespace piton
