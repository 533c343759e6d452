#include "base/options/byte_size.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace piton {
namespace {

TEST(ByteSize, HasAUnitOfThousandsOrOf1024) {
  EXPECT_EQ(bytes_of_size("--limit", "80GB"), 80'000'000'000);
  EXPECT_EQ(bytes_of_size("--limit", "64GiB"), std::int64_t{64} << 30);
  EXPECT_EQ(bytes_of_size("--limit", "1.5MiB"), 3 << 19);
  EXPECT_EQ(bytes_of_size("--limit", "512MB"), 512'000'000);
  EXPECT_EQ(bytes_of_size("--limit", "2TB"), 2'000'000'000'000);
  EXPECT_EQ(bytes_of_size("--limit", "1TiB"), std::int64_t{1} << 40);
  EXPECT_EQ(bytes_of_size("--limit", "4KiB"), 4096);
  EXPECT_EQ(bytes_of_size("--limit", ""), 0) << "not given";
}

TEST(ByteSize, OfAnotherFormIsRefused) {
  for (const std::string bad : {"much", "80", "80G", "GB", "0GB", "-1GB", "1 GB", "1XB", "1GBB",
                                "1iB", "1e30TB", "nanGB"}) {
    EXPECT_EQ(message_of(Fault::kUsage, [&] { bytes_of_size("--limit", bad); }),
              "--limit: got \"" + bad + "\", wanted a size, as in 80GB or 64GiB");
  }
}

TEST(ByteSize, LettersAfterANumberAreAFactor) {
  EXPECT_EQ(scale_of(""), 1);
  EXPECT_EQ(scale_of("k"), 1000);
  EXPECT_EQ(scale_of("K"), 1000);
  EXPECT_EQ(scale_of("Ki"), 1024);
  EXPECT_EQ(scale_of("Mi"), 1048576);
  EXPECT_EQ(scale_of("T"), 1e12);
  for (const char* bad : {"i", "x", "kk", "Mib", "m"})
    EXPECT_EQ(scale_of(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace piton
