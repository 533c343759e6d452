#include "generate/constraints/json_numbers.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "unit/generate/constraints/grammar_texts.h"

namespace piton {
namespace {

test::GrammarTexts integers(const NumberLimits& limits) {
  GrammarBuilder grammar;
  const auto whole = json_integer(grammar, limits);
  return test::GrammarTexts(grammar.finish(whole, "integer"));
}

test::GrammarTexts numbers(const NumberLimits& limits) {
  GrammarBuilder grammar;
  const auto whole = json_number(grammar, limits, "number");
  return test::GrammarTexts(grammar.finish(whole, "number"));
}

TEST(JsonInteger, HasExactlyTheNumbersWithinTheLimits) {
  for (const auto& [least, most] : {std::pair(-123, 1045), std::pair(7, 7), std::pair(0, 99),
                                    std::pair(-1000, -99), std::pair(98, 102), std::pair(-5, 0)}) {
    auto texts = integers({NumberLimit{double(least)}, NumberLimit{double(most)}});
    auto open =
        integers({NumberLimit{double(least - 1), true}, NumberLimit{double(most + 1), true}});
    for (int i = -1500; i <= 1500; ++i) {
      EXPECT_EQ(texts.has(std::to_string(i)), i >= least && i <= most) << i;
      EXPECT_EQ(open.has(std::to_string(i)), i >= least && i <= most) << i;
    }
    EXPECT_FALSE(texts.has("007"));
    EXPECT_FALSE(texts.has("1.0"));
  }
  EXPECT_TRUE(integers({}).has("-999999999999999999"));
  EXPECT_TRUE(integers({NumberLimit{1e17}, {}}).has("100000000000000000"));
}

TEST(JsonNumber, HasTheDecimalsWithinTheLimits) {
  for (const auto& [least, most] :
       {std::pair(-1.25, 3.5), std::pair(0.1, 0.3), std::pair(2.0, 2.75), std::pair(-9.99, -0.01),
        std::pair(0.0, 10.0), std::pair(99.5, 100.5)}) {
    for (const bool exclusive : {false, true}) {
      auto texts = numbers({NumberLimit{least, exclusive}, NumberLimit{most, exclusive}});
      for (int i = -12000; i <= 12000; i += 5) {
        const std::string text =
            fmt::format("{}{}.{:02}", i < 0 ? "-" : "", std::abs(i) / 100, std::abs(i) % 100);
        const double value = std::strtod(text.c_str(), nullptr);
        const bool within =
            exclusive ? value > least && value < most : value >= least && value <= most;
        EXPECT_EQ(texts.has(text), within) << text << " in " << least << " to " << most;
      }
      EXPECT_FALSE(texts.has("2."));
      EXPECT_FALSE(texts.has(".5"));
      std::mt19937_64 random(7);
      for (int i = 0; i < 200; ++i) {
        const double value = std::strtod(texts.draw(random, 8).c_str(), nullptr);
        EXPECT_TRUE(exclusive ? value > least && value < most : value >= least && value <= most);
      }
    }
  }
  EXPECT_TRUE(numbers({}).has("-1.5e+10"));
  EXPECT_FALSE(numbers({}).has("01"));
  EXPECT_TRUE(numbers({NumberLimit{1e-7}, {}}).has("0.0000002"));
  EXPECT_FALSE(numbers({NumberLimit{1e-7}, {}}).has("0.00000002"));
  EXPECT_THROW(numbers({NumberLimit{1e20}, {}}), Error);
}

}  // namespace
}  // namespace piton
