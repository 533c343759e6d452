#include "data/instruct/mixing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/errors.h"

namespace piton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// numpy 2.4.6: numpy.random.default_rng(seed).random(3)
TEST(NumpyGenerator, GivesTheNumbersOfNumpy) {
  NumpyGenerator first(1234);
  EXPECT_EQ(first.uniform(), 0.9766997666981422);
  EXPECT_EQ(first.uniform(), 0.3801957350196178);
  EXPECT_EQ(first.uniform(), 0.9232462337639554);
  NumpyGenerator zero(0);
  EXPECT_EQ(zero.uniform(), 0.6369616873214543);
  NumpyGenerator wide(1ULL << 40 | 5);
  EXPECT_EQ(wide.uniform(), 0.004739459374490829);
}

TEST(MixedOrder, TakesTurnsUntilOneOrAllAreExhausted) {
  EXPECT_THAT(mixed_order({2, 3}, {}), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(mixed_order({2, 3}, {.strategy = MixStrategy::kUnder}), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(mixed_order({2, 3}, {.strategy = MixStrategy::kOver}), ElementsAre(0, 2, 1, 3, 0, 4));
}

TEST(MixedOrder, DrawsBySharesUntilOneOrAllAreExhausted) {
  MixRules rules{.strategy = MixStrategy::kUnder, .probabilities = {0.5, 0.5}, .seed = 0};
  const auto under = mixed_order({50, 50}, rules);
  EXPECT_GE(under.size(), 50U);
  EXPECT_LT(under.size(), 100U);
  rules.strategy = MixStrategy::kOver;
  const auto over = mixed_order({50, 50}, rules);
  EXPECT_GE(over.size(), 100U);
  EXPECT_TRUE(std::equal(under.begin(), under.end(), over.begin()));
}

TEST(MixProbabilities, MustFitTheDataSets) {
  constexpr MixStrategy kUnder = MixStrategy::kUnder;
  EXPECT_THAT(mix_probabilities("0.25, 0.75", 2, kUnder), ElementsAre(0.25, 0.75));
  EXPECT_THAT(mix_probabilities("0,1", 2, kUnder), ElementsAre(0, 1));
  const auto fault = [](const char* text, MixStrategy strategy = MixStrategy::kUnder) {
    return message_of(Fault::kUsage, [&] { mix_probabilities(text, 2, strategy); });
  };
  EXPECT_THAT(fault("0.5"), HasSubstr("got 1 numbers with the sum 0.5, wanted one for each of 2"));
  EXPECT_THAT(fault("0.5,0.6"), HasSubstr("the sum 1.1"));
  EXPECT_THAT(fault("0.5;0.5"), HasSubstr("wanted numbers from 0 to 1"));
  EXPECT_THAT(fault("nan,1"), HasSubstr("wanted numbers from 0 to 1"));
  EXPECT_THAT(fault("-1,2"), HasSubstr("wanted numbers from 0 to 1"));
  EXPECT_THAT(fault(""), HasSubstr("got 0 numbers"));
  // Such a set is never exhausted.
  EXPECT_THAT(fault("1,0", MixStrategy::kOver),
              HasSubstr("got 0 for data set 2, which interleave_over would draw for ever"));
  EXPECT_THAT(fault("1e-300,1", MixStrategy::kOver), HasSubstr("got 1e-300 for data set 1"));
}

}  // namespace
}  // namespace piton
