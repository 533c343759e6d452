#include "base/printable.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

TEST(Printable, IsOneLineWithoutCodesForATerminal) {
  EXPECT_EQ(printable("a\nb\r\nc"), "a\\nb\\r\\nc");
  EXPECT_EQ(printable("a\tb"), "a\tb");
  EXPECT_EQ(printable("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J \xc2\x85"),
            "\\u009b2J \\u0085");
  EXPECT_EQ(printable("a\xe2\x80\xa8"
                      "b\xe2\x80\xa9"),
            "a\\u2028b\\u2029");
}

TEST(Printable, KeepsOtherTextAndBytes) {
  for (const std::string text :
       {"", "corpus_text_document", "C:\\new", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x8d", "\xc2",
        "\xc2\xa0", "\xe2\x80\xa7", "\xe2\x80", "\xff\xfe"}) {
    EXPECT_EQ(printable(text), text);
  }
}

}  // namespace
}  // namespace piton
