// Which characters count as marks. Wanted: normalizers.StripAccents of tokenizers 0.23.3. Texts
// that are replaced by others.
#include <gtest/gtest.h>

#include <string>

#include "text/steps/normalizers.h"

namespace piton {
namespace {

std::string stripped(std::string text) {
  make_strip_accents()->apply(text);
  return text;
}

TEST(StripAccents, LeavesOutMarksOfAllKinds) {
  EXPECT_EQ(stripped("a\u0301b"), "ab");
  EXPECT_EQ(stripped("a\u0903b"), "ab");
  EXPECT_EQ(stripped("\u00e9"), "\u00e9");
}

TEST(StripAccents, KnowsTheCategoriesOfUnicode9) {
  EXPECT_EQ(stripped("a\u1cf2b\u1cf3c"), "abc");        // letters since Unicode 12
  EXPECT_EQ(stripped("a\U000111c9b"), "a\U000111c9b");  // a mark since Unicode 11
  EXPECT_EQ(stripped("a\u0897b"), "a\u0897b");          // new in Unicode 16
}

TEST(Replace, PutsAnotherTextInEveryPlaceFromTheLeft) {
  const auto replaced = [](std::string text, const char* from, const char* to) {
    make_replace(std::string(from), to)->apply(text);
    return text;
  };
  EXPECT_EQ(replaced("ab1abab2", "ab", "--x"), "--x1--x--x2");
  EXPECT_EQ(replaced("aaa", "aa", "b"), "ba");
  EXPECT_EQ(replaced("abcab", "ab", ""), "c");
  EXPECT_EQ(replaced("a b ", " ", "\u2581"), "a\u2581b\u2581");
  EXPECT_EQ(replaced("cd", "ab", "x"), "cd");
}

}  // namespace
}  // namespace piton
