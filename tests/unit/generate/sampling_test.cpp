// Tokens are drawn with the frequencies given by their probabilities.
#include "generate/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "support/errors.h"

namespace piton {
namespace {

const std::vector<float> kLogits = {2.0F, 0.5F, -1.0F, 1.0F, 0.0F};
constexpr std::int64_t kDraws = 40000;

std::vector<double> softmax(double temperature, const std::vector<int>& among) {
  std::vector<double> shares(kLogits.size(), 0);
  double sum = 0;
  for (const int id : among) sum += std::exp(kLogits[id] / temperature);
  for (const int id : among) shares[id] = std::exp(kLogits[id] / temperature) / sum;
  return shares;
}

std::vector<double> frequencies(const SamplingOptions& options) {
  std::vector<double> shares(kLogits.size(), 0);
  for (std::int64_t i = 0; i < kDraws; ++i) shares[draw_token(kLogits, options, {i}).id] += 1;
  for (double& share : shares) share /= static_cast<double>(kDraws);
  return shares;
}

// A share p of n draws deviates by sqrt(p (1 - p) / n); five of that is one in two million.
void expect_shares(const SamplingOptions& options, const std::vector<double>& wanted) {
  const std::vector<double> got = frequencies(options);
  for (std::size_t id = 0; id < wanted.size(); ++id) {
    const double deviation = std::sqrt(wanted[id] * (1 - wanted[id]) / static_cast<double>(kDraws));
    EXPECT_NEAR(got[id], wanted[id], 5 * deviation)
        << "id " << id << " at temperature " << options.temperature;
  }
}

TEST(DrawToken, FollowsTheSoftmaxAtEveryTemperature) {
  for (const double temperature : {0.3, 1.0, 3.0}) {
    expect_shares({.temperature = temperature}, softmax(temperature, {0, 1, 2, 3, 4}));
  }
}

TEST(DrawToken, DrawsAmongTheKLikeliest) {
  expect_shares({.temperature = 2, .top_k = 2}, softmax(2, {0, 3}));
}

// At temperature 1 the shares are 0.55, 0.12, 0.03, 0.20, 0.07: 0.7 is passed by the second.
TEST(DrawToken, DrawsAmongThoseThatReachP) { expect_shares({.top_p = 0.7}, softmax(1, {0, 3})); }

TEST(DrawToken, TakesTheLikeliestWhereGreedy) {
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(draw_token(kLogits, {.greedy = true, .temperature = 100}, {i}).id, 0);
  }
}

TEST(DrawToken, DependsOnTheSeedAndThePlace) {
  std::vector<std::int32_t> first, again, other;
  for (std::int64_t i = 0; i < 64; ++i) {
    first.push_back(draw_token(kLogits, {.seed = 1}, {i}).id);
    again.push_back(draw_token(kLogits, {.seed = 1}, {i}).id);
    other.push_back(draw_token(kLogits, {.seed = 2}, {i}).id);
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

// The log-probability is the model's, whatever the filters.
TEST(DrawToken, GivesTheModelsOwnProbability) {
  const GeneratedToken token =
      draw_token(kLogits, {.greedy = true, .temperature = 3, .top_k = 1}, {0});
  EXPECT_NEAR(token.log_probability, std::log(softmax(1, {0, 1, 2, 3, 4})[0]), 1e-6);
}

// At temperature 1 the shares are 0.55, 0.12, 0.03, 0.20, 0.07.
TEST(DrawToken, DrawsAmongThoseNearTheLikeliest) {
  expect_shares({.min_p = 0.3}, softmax(1, {0, 3}));
  expect_shares({.min_p = 0.2}, softmax(1, {0, 1, 3}));
  expect_shares({.top_k = 2, .min_p = 0.01}, softmax(1, {0, 3}));
  expect_shares({.min_p = 1}, softmax(1, {0}));
}

// What a constraint does not allow is never drawn, and what is left has its shares.
TEST(DrawId, NeverChoosesWhatIsImpossible) {
  std::vector<float> logits = kLogits;
  logits[0] = logits[4] = -INFINITY;
  std::vector<double> shares(logits.size(), 0);
  for (std::int64_t i = 0; i < kDraws; ++i)
    shares[draw_id(logits, {}, {i})] += 1 / static_cast<double>(kDraws);
  const std::vector<double> wanted = softmax(1, {1, 2, 3});
  for (std::size_t id = 0; id < wanted.size(); ++id) EXPECT_NEAR(shares[id], wanted[id], 0.013);
  EXPECT_EQ(shares[0], 0);
  EXPECT_EQ(draw_id(logits, {.greedy = true}, {0}), 3);
}

TEST(DrawToken, DiffersFromDrawToDraw) {
  int equal = 0;
  for (std::int64_t i = 0; i < 64; ++i) {
    equal += draw_token(kLogits, {.temperature = 3}, {i, 0}).id ==
             draw_token(kLogits, {.temperature = 3}, {i, std::uint64_t{1} << 40}).id;
  }
  EXPECT_LT(equal, 40);
}

TEST(Penalties, AreThoseOfTransformersAndOpenAi) {
  std::vector<float> logits = {2, -2, 3, -3, 1};
  penalize(logits, {.repetition_penalty = 2}, std::vector<std::int32_t>{0, 1, 1, 4}, 2);
  EXPECT_THAT(logits, testing::ElementsAre(1, -4, 3, -3, 0.5));
  logits = {2, -2, 3, -3, 1};  // the first two ids are the prompt
  penalize(logits, {.presence_penalty = 0.5, .frequency_penalty = 0.25},
           std::vector<std::int32_t>{0, 1, 1, 4, 4, 4}, 2);
  EXPECT_THAT(logits, testing::ElementsAre(2, -2.75, 3, -3, -0.25));
}

TEST(SamplingOptions, RefuseWhatCannotBe) {
  const auto refusal = [](const SamplingOptions& options) {
    return message_of(Fault::kUsage, [&] { options.check(100); });
  };
  EXPECT_THAT(refusal({.min_p = -0.1}),
              testing::HasSubstr("--min-p: got -0.1, wanted 0 <= p <= 1"));
  EXPECT_THAT(refusal({.repetition_penalty = 0}),
              testing::HasSubstr("--repetition-penalty: got 0, wanted more than 0"));
  EXPECT_THAT(refusal({.presence_penalty = NAN}),
              testing::HasSubstr("--presence-penalty: got nan, wanted a number"));
  EXPECT_THAT(refusal({.frequency_penalty = INFINITY}),
              testing::HasSubstr("--frequency-penalty: got inf, wanted a number"));
}

// Some id would come out, and look like an answer.
TEST(Sampling, AmongNumbersThatAreNoneIsRefused) {
  for (const float bad : {std::nanf(""), INFINITY}) {
    for (const std::size_t at : {0U, 2U}) {
      std::vector<float> logits = {1, 2, 3, 4};
      logits[at] = bad;
      for (const bool greedy : {true, false}) {
        EXPECT_THAT(message_of(Fault::kData, [&] { draw_token(logits, {.greedy = greedy}, {0}); }),
                    testing::HasSubstr("the model's logits are not finite; are its weights"));
      }
      EXPECT_THAT(message_of(Fault::kData, [&] { likeliest_tokens(logits, 2); }),
                  testing::HasSubstr("not finite"));
    }
  }
}

// In any place, whatever the length is a multiple of; the first of equal ones.
TEST(LikeliestToken, IsTheLargestLogit) {
  for (const std::size_t size : {1U, 2U, 15U, 16U, 17U, 33U, 100U}) {
    for (std::size_t at = 0; at < size; ++at) {
      std::vector<float> logits(size, -3.0F);
      logits[at] = -1.0F;
      logits.back() = -1.0F;
      const LikelyToken token = likeliest_tokens(logits, 1).front();
      EXPECT_EQ(token.id, static_cast<std::int32_t>(at)) << size;
      EXPECT_EQ(token.log_probability, -1.0 - log_sum_exp(logits));
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      EXPECT_NEAR(log_sum_exp(logits), std::log(sum), 1e-14);
    }
  }
}

}  // namespace
}  // namespace piton
