#include "base/random/philox.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/hash.h"

namespace piton {
namespace {

// Known answers of philox4x32-10 from Random123 (Salmon et al.), file tests/kat_vectors.
TEST(Philox, EqualsThePublishedAnswers) {
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}),
            (PhiloxBlock{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(philox({kOnes, kOnes}, {kOnes, kOnes, kOnes, kOnes}),
            (PhiloxBlock{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox({0xA4093822, 0x299F31D0}, {0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}),
            (PhiloxBlock{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

// One by one is the definition; many at once are laid out in other ways.
TEST(PhiloxNormals, AreBitForBitThoseDrawnOneByOne) {
  const PhiloxKey key = site_key(7, "layers.0.mlp.up.weight");
  for (const std::uint64_t first_block :
       {std::uint64_t{0}, std::uint64_t{61}, std::uint64_t{0xFFFFFFF0}}) {
    for (const std::size_t size : {std::size_t{4}, std::size_t{252}, std::size_t{100000}}) {
      std::vector<double> many(size);
      philox_normals(key, first_block, many);
      for (std::size_t i = 0; i < size; ++i) {
        ASSERT_EQ(std::bit_cast<std::uint64_t>(many[i]),
                  std::bit_cast<std::uint64_t>(philox_normal(key, 4 * first_block + i)))
            << first_block << " + " << i;
      }
    }
  }
  philox_normals(key, 0, {});
}

TEST(SiteKey, IsTheHashOfTheSiteSeededByTheSeed) {
  const PhiloxKey key = site_key(1234, "piton");
  EXPECT_EQ(key.low, 0x2D24C186U);  // xxh3_64(b"piton", seed=1234) = 6cdcb9422d24c186
  EXPECT_EQ(key.high, 0x6CDCB942U);
}

TEST(MaskCounter, PacksTheGlobalCoordinates) {
  EXPECT_EQ(mask_counter(0x0000'00AB'1234'5678, 7, 99, 42),
            (PhiloxBlock{0x12345678, 0x00AB0007, 99, 10}));
}

TEST(DropThreshold, IsTheProbabilityOfAWordBelowIt) {
  EXPECT_EQ(drop_threshold(0.0), 0U);
  EXPECT_EQ(drop_threshold(0.25), 0x40000000U);
  // A tenth of all words, within 4 standard deviations of a binomial of 400000 draws.
  const PhiloxKey key = site_key(1, "dropout");
  const std::uint32_t threshold = drop_threshold(0.1);
  int dropped = 0;
  for (std::uint32_t i = 0; i < 100000; ++i) {
    for (const std::uint32_t word : philox(key, {i, 0, 0, 0})) dropped += word < threshold;
  }
  EXPECT_NEAR(dropped, 40000, 4 * std::sqrt(400000 * 0.1 * 0.9));
}

// Sine of `turns` full turns. The argument is brought to a quarter turn exactly, since near a zero
// of the sine even 64 bits of an angle leave few bits of the result.
long double sine_of_turns(long double turns) {
  turns -= std::round(turns);
  if (turns > 0.25L) turns = 0.5L - turns;
  if (turns < -0.25L) turns = -0.5L - turns;
  return std::sin(2 * M_PIl * turns);
}

// The C library's long double functions (64 bits of mantissa) are the oracle.
TEST(PhiloxNormal, EqualsBoxMullerByTheCLibrary) {
  const PhiloxKey key = site_key(7, "embedding.weight");
  double worst = 0;
  for (std::uint64_t index = 0; index < 200000; ++index) {
    const std::uint64_t block = index / 4;
    const PhiloxBlock words = philox(
        key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 1});
    const std::size_t first = index % 4 < 2 ? 0 : 2;
    const long double u = (words[first] + 0.5L) / 4294967296.0L;
    const long double turns =
        (words[first + 1] + 0.5L) / 4294967296.0L + (index % 2 == 0 ? 0.25L : 0);
    const long double radius = std::sqrt(-2 * std::log(u));
    const long double expected = radius * sine_of_turns(turns);
    const double error =
        static_cast<double>(std::abs((philox_normal(key, index) - expected) / expected));
    worst = std::max(worst, error);
  }
  EXPECT_LT(worst, 1e-15);  // 4.5 units of 2^-52
}

// Standard errors of n draws: mean 1/sqrt(n), variance sqrt(2/n), skewness sqrt(6/n),
// kurtosis sqrt(24/n); 4 of each. Neighbors are uncorrelated within 4/sqrt(n).
TEST(PhiloxNormal, HasTheMomentsOfANormal) {
  const PhiloxKey key = site_key(42, "moments");
  constexpr int kDraws = 1'000'000;
  double sums[5] = {};
  double neighbors = 0;
  double previous = 0;
  for (int block = 0; block < kDraws / 4; ++block) {
    for (const double x : philox_normal4(key, static_cast<std::uint64_t>(block))) {
      double power = 1;
      for (double& sum : sums) {
        sum += power;
        power *= x;
      }
      neighbors += x * previous;
      previous = x;
    }
  }
  const double n = kDraws;
  EXPECT_NEAR(sums[1] / n, 0, 4 / std::sqrt(n));
  EXPECT_NEAR(sums[2] / n, 1, 4 * std::sqrt(2 / n));
  EXPECT_NEAR(sums[3] / n, 0, 4 * std::sqrt(15 / n));
  EXPECT_NEAR(sums[4] / n, 3, 4 * std::sqrt(96 / n));
  EXPECT_NEAR(neighbors / n, 0, 4 / std::sqrt(n));
}

TEST(PhiloxNormal4, IsFourNeighborsOfPhiloxNormal) {
  const PhiloxKey key = site_key(3, "x");
  for (const std::uint64_t block : {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{1} << 40}) {
    const auto four = philox_normal4(key, block);
    for (std::uint64_t lane = 0; lane < 4; ++lane) {
      EXPECT_EQ(four[lane], philox_normal(key, 4 * block + lane));
    }
  }
}

// Initial weights are part of an experiment: the bits of these draws never change, on any machine.
// The oracle of the values is the test above; this one pins their bits.
TEST(PhiloxNormal, NeverChangesItsBits) {
  const PhiloxKey key = site_key(1234, "layers.0.attention.query.weight");
  std::uint64_t bits = 0;
  for (std::uint64_t index = 0; index < 100000; ++index) {
    const auto word = std::bit_cast<std::array<char, 8>>(philox_normal(key, index));
    bits = hash64({word.data(), word.size()}, bits);
  }
  EXPECT_EQ(bits, 12605290391909595359U);
}

}  // namespace
}  // namespace piton
