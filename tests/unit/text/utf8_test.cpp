#include "text/unicode/utf8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

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

}  // namespace
}  // namespace piton
