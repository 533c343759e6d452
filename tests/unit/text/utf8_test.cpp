#include "text/unicode/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "text/tokenizer.h"

namespace piton {
namespace {

std::string marked(std::string_view bytes) {
  std::string text = replace_bad_utf8(bytes);
  for (std::size_t at = text.find("\uFFFD"); at != std::string::npos; at = text.find("\uFFFD")) {
    text.replace(at, 3, "?");
  }
  return text;
}

// The Unicode Standard 15.0, tables 3-8 to 3-11.
TEST(Utf8, BadBytesAreReplacedByMaximalParts) {
  EXPECT_EQ(marked("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "????????A");
  EXPECT_EQ(marked("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "????????A");
  EXPECT_EQ(marked("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "?????A??B");
  EXPECT_EQ(marked("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "????A");
  EXPECT_EQ(marked("a\xE4\xB8"), "a?");
  EXPECT_EQ(marked(""), "");
}

TEST(Utf8, ReplacingBadBytesLeavesWellFormedTextAndMakesAnyTextWellFormed) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 20000; ++trial) {
    std::string bytes;
    for (std::size_t i = random() % 24; i > 0; --i) {
      // Leads and tails, more often than chance would have them.
      bytes.push_back(static_cast<char>(random() % 3 == 0 ? random() % 128 : 128 + random() % 128));
    }
    const std::string text = replace_bad_utf8(bytes);
    ASSERT_EQ(valid_utf8_prefix(text), text.size());
    ASSERT_EQ(replace_bad_utf8(text), text);
    const std::size_t valid = valid_utf8_prefix(bytes);
    ASSERT_TRUE(text.starts_with(bytes.substr(0, valid)));
  }
}

TEST(Utf8, CompletePrefixesLeaveOutTheBeginningOfACharacterAndNothingElse) {
  std::set<std::string> begun;                         // all that a character can begin with
  for (char32_t c = 0x80; c <= 0x10FFFF; c += 0x40) {  // the last byte is in none of these
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    EXPECT_EQ(complete_utf8_prefix(text), text.size()) << static_cast<std::uint32_t>(c);
    for (std::size_t n = 1; n < text.size(); ++n) begun.insert(text.substr(0, n));
  }
  std::mt19937 random(7);
  for (int trial = 0; trial < 200000; ++trial) {
    std::string bytes = "a";
    for (std::size_t i = random() % 5; i > 0; --i)
      bytes.push_back(static_cast<char>(random() % 8 == 0 ? 'b' : 128 + random() % 128));
    std::size_t wanted = bytes.size();
    for (std::size_t at = 1; at < bytes.size(); ++at) {
      if (begun.contains(bytes.substr(at))) wanted = at;
    }
    ASSERT_EQ(complete_utf8_prefix(bytes), wanted);
  }
}

}  // namespace
}  // namespace piton
