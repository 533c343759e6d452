// The schedule at its corners; numbers are worked out by hand from the formulas of Megatron-LM's
// OptimizerParamScheduler.get_lr.
#include "optim/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

LearningRateOptions options(DecayStyle style) {
  LearningRateOptions options;
  options.lr = 1e-3;
  options.min_lr = 1e-4;
  options.decay_style = style;
  options.decay_iters = 110;
  options.warmup_iters = 10;
  return options;
}

TEST(LearningRate, RisesFromZeroToItsHighestInTheWarmUp) {
  for (const DecayStyle style : {DecayStyle::kConstant, DecayStyle::kLinear, DecayStyle::kCosine,
                                 DecayStyle::kInverseSquareRoot}) {
    const LearningRate rate(options(style), 1000, 1);
    EXPECT_EQ(rate.at(0), 0);
    EXPECT_DOUBLE_EQ(rate.at(5), 5e-4);
    EXPECT_DOUBLE_EQ(rate.at(10), 1e-3);
  }
}

TEST(LearningRate, IsConstantBehindTheWarmUpAndBeyondTheDecay) {
  const LearningRate rate(options(DecayStyle::kConstant), 1000, 1);
  EXPECT_EQ(rate.at(11), 1e-3);
  EXPECT_EQ(rate.at(110), 1e-3);
  EXPECT_EQ(rate.at(111), 1e-3);
}

TEST(LearningRate, FallsLinearlyToItsLowestAtTheEndOfTheDecay) {
  const LearningRate rate(options(DecayStyle::kLinear), 1000, 1);
  EXPECT_DOUBLE_EQ(rate.at(11), 1e-4 + 0.99 * 9e-4);
  EXPECT_DOUBLE_EQ(rate.at(60), 1e-4 + 0.5 * 9e-4);
  EXPECT_DOUBLE_EQ(rate.at(109), 1e-4 + 0.01 * 9e-4);
  EXPECT_DOUBLE_EQ(rate.at(110), 1e-4);
  EXPECT_EQ(rate.at(111), 1e-4);
}

TEST(LearningRate, FallsAsHalfACosine) {
  const LearningRate rate(options(DecayStyle::kCosine), 1000, 1);
  // cos(pi / 100) = 0.99950656036573155700, cos(pi / 3) = 1 / 2
  EXPECT_DOUBLE_EQ(rate.at(11), 1e-4 + 0.5 * 1.99950656036573155700 * 9e-4);
  EXPECT_DOUBLE_EQ(rate.at(60), 1e-4 + 0.5 * 9e-4);
  EXPECT_NEAR(rate.at(110), 1e-4, 1e-18);
  EXPECT_EQ(rate.at(111), 1e-4);
}

TEST(LearningRate, FallsAsTheInverseSquareRootAndNotBelowItsLowest) {
  LearningRateOptions wanted = options(DecayStyle::kInverseSquareRoot);
  wanted.decay_iters = 100000;
  const LearningRate rate(wanted, 1000, 1);
  EXPECT_DOUBLE_EQ(rate.at(40), 5e-4);  // sqrt(10 / 40)
  EXPECT_DOUBLE_EQ(rate.at(90), 1e-3 / 3);
  EXPECT_EQ(rate.at(99999), 1e-4);
  wanted.warmup_iters = 0;
  EXPECT_DOUBLE_EQ(LearningRate(wanted, 1000, 1).at(0), 1e-3);
  EXPECT_DOUBLE_EQ(LearningRate(wanted, 1000, 1).at(4), 5e-4);
}

TEST(LearningRate, DecaysOverTheTrainingStepsUnlessTold) {
  LearningRateOptions wanted = options(DecayStyle::kLinear);
  wanted.decay_iters.reset();
  const LearningRate rate(wanted, 50, 1);
  EXPECT_EQ(rate.decay_steps(), 50);
  EXPECT_DOUBLE_EQ(rate.at(30), 1e-4 + 0.5 * 9e-4);
}

TEST(LearningRate, TakesTheWarmUpAsAFractionOfTheDecay) {
  LearningRateOptions wanted = options(DecayStyle::kLinear);
  wanted.warmup_iters = 0;
  wanted.warmup_fraction = 0.25;
  const LearningRate rate(wanted, 1000, 1);
  EXPECT_DOUBLE_EQ(rate.warmup_steps(), 27.5);
  EXPECT_DOUBLE_EQ(rate.at(11), 4e-4);
  EXPECT_DOUBLE_EQ(rate.at(28), 1e-4 + (1 - 0.5 / 82.5) * 9e-4);
}

TEST(LearningRate, WithoutWarmUpStartsAtItsHighest) {
  LearningRateOptions wanted = options(DecayStyle::kCosine);
  wanted.warmup_iters = 0;
  EXPECT_DOUBLE_EQ(LearningRate(wanted, 1000, 1).at(0), 1e-3);
}

// Every style, lengths in samples included, against Megatron-core (the file names its version).
TEST(LearningRate, IsThatOfMegatronCore) {
  const std::map<std::string, DecayStyle> styles{
      {"constant", DecayStyle::kConstant},
      {"linear", DecayStyle::kLinear},
      {"cosine", DecayStyle::kCosine},
      {"inverse-square-root", DecayStyle::kInverseSquareRoot},
      {"WSD", DecayStyle::kWsd}};
  const std::map<std::string, AnnealingStyle> annealing_styles{
      {"linear", AnnealingStyle::kLinear},
      {"cosine", AnnealingStyle::kCosine},
      {"exponential", AnnealingStyle::kExponential},
      {"minus_sqrt", AnnealingStyle::kMinusSquareRoot}};
  std::ifstream file(std::filesystem::path(PITON_SOURCE_DIR) /
                     "tests/golden/megatron_learning_rates.txt");
  std::string line;
  int cases = 0;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(line);
    std::istringstream words(line);
    std::string style, annealing_style;
    std::int64_t batch = 0, warmup = 0, decay = 0, annealing = 0;
    words >> style >> annealing_style >> batch >> warmup >> decay >> annealing;
    LearningRateOptions wanted{.lr = 1e-3, .min_lr = 1e-4, .decay_style = styles.at(style)};
    wanted.decay_samples = decay;
    wanted.warmup_samples = warmup;
    if (annealing > 0) {
      wanted.annealing_style = annealing_styles.at(annealing_style);
      wanted.annealing_samples = annealing;
    }
    const LearningRate rate(wanted, 1, batch);
    for (const std::int64_t step : {0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144}) {
      double megatron = 0;
      words >> megatron;
      EXPECT_NEAR(rate.at(step), megatron, 1e-17) << "step " << step;
    }
    EXPECT_TRUE(words);
    ++cases;
  }
  EXPECT_EQ(cases, 40);
}

// Embedding and head with another highest and lowest rate, and a warm-up that starts above 0.
TEST(LearningRate, OfGroupsIsThatOfMegatronCore) {
  const std::map<std::string, DecayStyle> styles{
      {"constant", DecayStyle::kConstant},
      {"linear", DecayStyle::kLinear},
      {"cosine", DecayStyle::kCosine},
      {"inverse-square-root", DecayStyle::kInverseSquareRoot},
      {"WSD", DecayStyle::kWsd}};
  std::ifstream file(std::filesystem::path(PITON_SOURCE_DIR) /
                     "tests/golden/rates/megatron_group_rates.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(line);
    std::istringstream words(line);
    std::string style, lowest;
    LearningRateOptions wanted{.lr = 1e-3, .min_lr = 1e-4};
    double highest = 0;
    words >> style >> wanted.warmup_init >> highest >> lowest;
    wanted.decay_style = styles.at(style);
    wanted.decoupled_lr = highest;
    if (lowest != "-") wanted.decoupled_min_lr = std::stod(lowest);
    wanted.decay_iters = 100;
    wanted.warmup_iters = 5;
    wanted.lora_plus_ratio = 16;
    if (style == "WSD") {
      wanted.annealing_style = AnnealingStyle::kCosine;
      wanted.annealing_iters = 60;
    }
    const LearningRate rate(wanted, 1, 1);
    for (const std::int64_t step : {0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144}) {
      double base = 0, decoupled = 0;
      words >> base >> decoupled;
      const GroupRates rates = rate.of_groups(step);
      EXPECT_NEAR(rates.base, base, 1e-17) << "step " << step;
      EXPECT_NEAR(rates.vocabulary, decoupled, 1e-17) << "step " << step;
      EXPECT_EQ(rates.adapter_outputs, 16 * rates.base);
    }
    EXPECT_TRUE(words);
    ++cases;
  }
  EXPECT_EQ(cases, 30);
}

// 8 samples of 16 tokens a step: a warm-up of 512 tokens is 4 steps, a decay of 2560 is 20.
TEST(LearningRate, TakesLengthsInTokens) {
  LearningRateOptions wanted;
  wanted.lr = 1;
  wanted.min_lr = 0;
  wanted.warmup_tokens = 512;
  wanted.decay_tokens = 2560;
  const LearningRate rate(wanted, 1000, 8, 16);
  EXPECT_DOUBLE_EQ(rate.warmup_steps(), 4);
  EXPECT_DOUBLE_EQ(rate.decay_steps(), 20);
  // Worked out by hand, in tokens n: n / 512, then (2560 - n) / 2048.
  const std::map<double, double> at_tokens = {{0, 0},         {128, 0.25},   {256, 0.5},
                                              {512, 1},       {640, 0.9375}, {1536, 0.5},
                                              {2432, 0.0625}, {2560, 0},     {2688, 0}};
  for (const auto& [tokens, value] : at_tokens) EXPECT_DOUBLE_EQ(rate.at(tokens / 128), value);
  // While the batch grows: two samples done are 32 tokens, a quarter of a step.
  EXPECT_DOUBLE_EQ(rate.at(2.0 / 8), 32.0 / 512);
  wanted.decay_tokens.reset();
  EXPECT_DOUBLE_EQ(LearningRate(wanted, 1000, 8, 16).decay_steps(), 1000);
  wanted.warmup_tokens = 500;
  EXPECT_DOUBLE_EQ(LearningRate(wanted, 1000, 8, 16).warmup_steps(), 3.90625);
}

TEST(LearningRate, CountsAllLengthsInOneUnit) {
  const auto refused = [](bool by_samples, auto&& change) {
    LearningRateOptions wanted;
    change(wanted);
    return message_of(Fault::kUsage, [&] { check_one_unit(wanted, by_samples); });
  };
  EXPECT_EQ(refused(true, [](auto& o) { o.decay_iters = 10; }),
            "learning rate: --lr-decay-iters: this run is by --train-samples, whose lengths are in "
            "samples too; give --lr-decay-samples");
  EXPECT_THAT(refused(true, [](auto& o) { o.warmup_iters = 1; }), HasSubstr("--lr-warmup-iters"));
  EXPECT_THAT(refused(false, [](auto& o) { o.warmup_samples = 1; }),
              HasSubstr("--lr-warmup-samples: this run is by --train-iters"));
  EXPECT_THAT(refused(false, [](auto& o) { o.annealing_samples = 1; }),
              HasSubstr("--lr-wsd-decay-samples: this run"));
  EXPECT_THAT(refused(false,
                      [](auto& o) {
                        o.decay_tokens = 10;
                        o.warmup_iters = 1;
                      }),
              HasSubstr("--lr-warmup-iters and --lr-decay-tokens: lengths of one schedule"));
  LearningRateOptions fine;
  fine.decay_iters = 10;
  fine.warmup_iters = 1;
  check_one_unit(fine, false);
  fine = {};
  fine.warmup_samples = 1;
  check_one_unit(fine, true);
  fine = {};
  fine.warmup_tokens = 1;
  fine.decay_tokens = 2;
  check_one_unit(fine, true);
  check_one_unit(fine, false);
}

TEST(LearningRate, RefusesWhatCannotBe) {
  const auto refused = [](auto&& change) {
    LearningRateOptions wanted = options(DecayStyle::kLinear);
    change(wanted);
    return message_of(Fault::kUsage, [&] { LearningRate(wanted, 100, 1); });
  };
  EXPECT_EQ(refused([](auto& o) { o.lr = 0; }),
            "learning rate: --lr: got 0, wanted a number above 0, 1e-30 to 1e+30");
  EXPECT_THAT(refused([](auto& o) { o.min_lr = 2e-3; }), HasSubstr("--min-lr: got 0.002"));
  EXPECT_THAT(refused([](auto& o) { o.decoupled_lr = 1e-5; }),
              HasSubstr("--decoupled-min-lr: got 0.0001, wanted 0 to --decoupled-lr, which is "
                        "1e-05"));
  EXPECT_THAT(refused([](auto& o) { o.decoupled_min_lr = 1e-5; }),
              HasSubstr("--decoupled-min-lr: needs --decoupled-lr"));
  EXPECT_THAT(refused([](auto& o) { o.warmup_init = 2e-3; }),
              HasSubstr("--lr-warmup-init: got 0.002, wanted 0 to --lr, which is 0.001"));
  EXPECT_THAT(refused([](auto& o) {
                o.warmup_init = 1e-5;
                o.warmup_iters = 0;
              }),
              HasSubstr("--lr-warmup-init: got 1e-05 without a warm-up"));
  EXPECT_THAT(refused([](auto& o) { o.lora_plus_ratio = 0; }),
              HasSubstr("--lora-plus-lr-ratio: got 0"));
  EXPECT_THAT(refused([](auto& o) { o.decay_iters = 0; }), HasSubstr("--lr-decay-iters"));
  EXPECT_THAT(refused([](auto& o) { o.warmup_iters = 110; }),
              HasSubstr("a warm-up of 110 steps does not end before the decay of 110"));
  EXPECT_THAT(refused([](auto& o) { o.warmup_fraction = 0.5; }), HasSubstr("exclude each other"));
  EXPECT_THAT(refused([](auto& o) {
                o.warmup_iters = 0;
                o.warmup_fraction = 1.0;
              }),
              HasSubstr("--lr-warmup-fraction"));
  EXPECT_THAT(refused([](auto& o) { o.decay_samples = 10; }),
              HasSubstr("--lr-decay-iters and --lr-decay-samples exclude each other"));
  EXPECT_THAT(refused([](auto& o) { o.decay_tokens = 10; }),
              HasSubstr("--lr-decay-iters and --lr-decay-tokens exclude each other"));
  EXPECT_THAT(refused([](auto& o) {
                o.decay_iters.reset();
                o.decay_tokens = 0;
              }),
              HasSubstr("--lr-decay-tokens: got 0, wanted 1 or more"));
  EXPECT_THAT(refused([](auto& o) { o.annealing_iters = 10; }), HasSubstr("WSD"));
  EXPECT_THAT(refused([](auto& o) { o.decay_style = DecayStyle::kWsd; }),
              HasSubstr("needs --lr-wsd-decay-iters"));
  EXPECT_THAT(refused([](auto& o) {
                o.decay_style = DecayStyle::kWsd;
                o.annealing_iters = 101;
              }),
              HasSubstr("--lr-wsd-decay-iters: got 101 steps, wanted at most 100"));
}

}  // namespace
}  // namespace piton
