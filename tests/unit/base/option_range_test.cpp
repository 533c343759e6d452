#include "base/options/option_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"

namespace piton {
namespace {

using testing::StartsWith;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(CheckRange, NamesTheFlagAndBothEnds) {
  check_range("--x", 1, 1, 3);
  check_range("--x", 3, 1, 3);
  check_range("--x", kMost, 1);
  EXPECT_EQ(message_of(Fault::kUsage, [] { check_range("--x", 0, 1); }),
            "--x: got 0, wanted 1 or more");
  EXPECT_EQ(message_of(Fault::kUsage, [] { check_range("--x", 4, 1, 3); }),
            "--x: got 4, wanted 1 to 3");
}

TEST(CheckedProduct, IsRefusedBeforeItOverflows) {
  EXPECT_EQ(checked_product("--x", "n", 1 << 30, 1 << 30), std::int64_t{1} << 60);
  EXPECT_EQ(checked_product("--x", "n", 3, 5, 7), 105);
  EXPECT_THAT(message_of(Fault::kUsage, [] { checked_product("--x", "tokens", kMost, 2); }),
              StartsWith("--x: tokens would be 1.8e+19"));
  EXPECT_THAT(message_of(Fault::kUsage, [] { checked_product("--x", "n", kMost, kMost, kMost); }),
              StartsWith("--x: n would be 7.8e+56"));
}

}  // namespace
}  // namespace piton
