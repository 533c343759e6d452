#include "base/amounts.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

TEST(Amounts, TimesHaveHoursMinutesAndSeconds) {
  EXPECT_EQ(hours_text(0), "0:00:00");
  EXPECT_EQ(hours_text(59), "0:00:59");
  EXPECT_EQ(hours_text(3723), "1:02:03");
  EXPECT_EQ(hours_text(100 * 3600 - 1), "99:59:59");
}

TEST(Amounts, OfMemoryAreInMebibytes) {
  EXPECT_EQ(mebibytes(0), 0);
  EXPECT_EQ(mebibytes(3 << 19), 1.5);
  EXPECT_EQ(mebibytes(std::int64_t{1} << 50), 0x1p30);
}

}  // namespace
}  // namespace piton
