// Which characters count as marks. Wanted: normalizers.StripAccents of tokenizers 0.23.3.
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

}  // namespace
}  // namespace piton
