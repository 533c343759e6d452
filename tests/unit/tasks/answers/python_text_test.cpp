#include "tasks/answers/python_text.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

TEST(PythonText, StripsTheWhiteSpaceThatPythonStrips) {
  EXPECT_EQ(python_stripped(" \t\u3000 a b\u00A0\x1F\n"), "a b");
  EXPECT_EQ(python_right_stripped(" a\u2003"), " a");
  EXPECT_EQ(python_left_stripped("\v\f a "), "a ");
  EXPECT_EQ(python_stripped("\u3000"), "");
  EXPECT_EQ(python_stripped("\u200Ba"), "\u200Ba");  // a zero-width space is no white space
}

TEST(PythonText, CapitalizesTheFirstCharacterAlone) {
  EXPECT_EQ(python_capitalized("éMILE Takes"), "Émile takes");
  EXPECT_EQ(python_capitalized("ǆ"), "ǅ");
  EXPECT_EQ(python_capitalized(""), "");
}

TEST(PythonText, CountsCharactersAndWords) {
  EXPECT_EQ(python_length("aé中😀"), 4);
  EXPECT_EQ(python_word_count(" a  b\u3000c"), 4);
  EXPECT_EQ(python_word_count(""), 1);
}

TEST(PythonText, ReplacesFromTheLeftWithoutOverlap) {
  EXPECT_EQ(python_replaced("aaaa b", "aa", "a"), "aa b");
  EXPECT_EQ(python_replaced("= = = = x", "= = = =", "===="), "==== x");
}

}  // namespace
}  // namespace piton
