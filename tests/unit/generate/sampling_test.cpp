// Tokens are drawn with the frequencies given by their probabilities.
#include "generate/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "base/files/files.h"
#include "base/json.h"
#include "base/threads.h"
#include "device/host_device.h"
#include "generate/token_draws.h"
#include "kernels/cpu/kernels.h"
#include "support/errors.h"
#include "support/tensors.h"

namespace piton {
namespace {

const std::vector<float> kLogits = {2.0F, 0.5F, -1.0F, 1.0F, 0.0F};
constexpr std::int64_t kDraws = 40000;

struct DrawState {
  std::vector<std::int32_t> text;  // of which nothing was given
  double most_surprise = 0;
};
struct Draws {
  std::vector<std::int32_t> ids;
  std::vector<double> shares;
};

// Draws from the same logits.
Draws draws_of(const std::vector<float>& logits, const SamplingOptions& options,
               const std::vector<DrawPlace>& places, const DrawState& state) {
  ThreadPool threads(2);
  HostDevice device;
  Arena arena{device};
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<Kernels> kernels = make_cpu_kernels(threads);
  ResidentWeights weights{*kernels, arena};
  const Context context{
      .kernels = *kernels, .stream = *stream, .device = device, .arena = arena, .weights = weights};
  std::vector<double> rows;
  std::vector<TokenDraw> draws;
  for (const DrawPlace& place : places) {
    rows.insert(rows.end(), logits.begin(), logits.end());
    draws.push_back({.sampling = &options,
                     .place = place,
                     .text = state.text,
                     .most_surprise = state.most_surprise});
  }
  const auto width = std::ssize(logits);
  const auto [ids, shares] = draw_ids(
      context, test::tensor_of(DType::kF32, {1, std::ssize(places), width}, rows), width, draws);
  const std::span<const std::int32_t> all(ids.data<std::int32_t>(), places.size());
  const std::span<const double> all_shares(shares.data<double>(), places.size());
  return {{all.begin(), all.end()}, {all_shares.begin(), all_shares.end()}};
}

std::vector<std::int32_t> draw(const std::vector<float>& logits, const SamplingOptions& options,
                               const std::vector<DrawPlace>& places,
                               const std::vector<std::int32_t>& text = {}) {
  return draws_of(logits, options, places, {.text = text}).ids;
}

std::vector<DrawPlace> first_places(std::int64_t count, std::uint64_t sample = 0) {
  std::vector<DrawPlace> places;
  for (std::int64_t i = 0; i < count; ++i) places.push_back({i, sample});
  return places;
}

// Draws of the first tokens of a text.
std::vector<std::int32_t> draw(const std::vector<float>& logits, const SamplingOptions& options,
                               std::int64_t count, std::uint64_t sample = 0) {
  return draw(logits, options, first_places(count, sample));
}

std::vector<double> softmax(double temperature, const std::vector<int>& among) {
  std::vector<double> shares(kLogits.size(), 0);
  double sum = 0;
  for (const int id : among) sum += std::exp(kLogits[id] / temperature);
  for (const int id : among) shares[id] = std::exp(kLogits[id] / temperature) / sum;
  return shares;
}

std::vector<double> frequencies(const SamplingOptions& options) {
  std::vector<double> shares(kLogits.size(), 0);
  for (const std::int32_t id : draw(kLogits, options, kDraws)) shares[id] += 1;
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
  for (const std::int32_t id : draw(kLogits, {.greedy = true, .temperature = 100}, 20))
    EXPECT_EQ(id, 0);
}

TEST(DrawToken, DependsOnTheSeedAndThePlace) {
  const std::vector<std::int32_t> first = draw(kLogits, {.seed = 1}, 64);
  const std::vector<std::int32_t> again = draw(kLogits, {.seed = 1}, 64);
  const std::vector<std::int32_t> other = draw(kLogits, {.seed = 2}, 64);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

// The log-probability is the model's, whatever the filters.
TEST(DrawToken, GivesTheModelsOwnProbability) {
  const GeneratedToken token = token_of(kLogits, {.temperature = 3, .top_k = 1}, 0);
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
TEST(DrawToken, NeverChoosesWhatIsImpossible) {
  std::vector<float> logits = kLogits;
  logits[0] = logits[4] = -INFINITY;
  std::vector<double> shares(logits.size(), 0);
  for (const std::int32_t id : draw(logits, {}, kDraws))
    shares[id] += 1 / static_cast<double>(kDraws);
  const std::vector<double> wanted = softmax(1, {1, 2, 3});
  for (std::size_t id = 0; id < wanted.size(); ++id) EXPECT_NEAR(shares[id], wanted[id], 0.013);
  EXPECT_EQ(shares[0], 0);
  EXPECT_EQ(draw(logits, {.greedy = true}, 1), std::vector<std::int32_t>{3});
}

TEST(DrawToken, DiffersFromDrawToDraw) {
  const std::vector<std::int32_t> first = draw(kLogits, {.temperature = 3}, 64);
  const std::vector<std::int32_t> other =
      draw(kLogits, {.temperature = 3}, 64, std::uint64_t{1} << 40);
  int equal = 0;
  for (std::size_t i = 0; i < first.size(); ++i) equal += first[i] == other[i] ? 1 : 0;
  EXPECT_LT(equal, 40);
}

std::vector<nlohmann::json> golden_lines(const char* name) {
  std::istringstream lines(
      read_text_file(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/sampling" / name));
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(read_json<nlohmann::json>(line));
  return all;
}

// Those of Transformers (tools/oracle/ngrams.py): an id that is left out is not drawn although it
// is the likeliest one.
TEST(DrawToken, RepeatsNoNGram) {
  std::size_t forbidden = 0;
  for (const auto& golden : golden_lines("ngrams.jsonl")) {
    SCOPED_TRACE(golden.dump());
    const auto text = golden["text"].get<std::vector<std::int32_t>>();
    const auto without = golden["forbidden"].get<std::vector<std::int32_t>>();
    const SamplingOptions options{.greedy = true,
                                  .no_repeat_ngram_size = golden["n"].get<std::int64_t>()};
    for (std::int32_t id = 0; id < 6; ++id) {
      std::vector<float> logits(6, 0);
      logits[static_cast<std::size_t>(id)] = 1;
      const bool drawn = draw(logits, options, {{0, 0}}, text).front() == id;
      // With all of them left out, none is.
      EXPECT_EQ(drawn, std::ranges::count(without, id) == 0 || without.size() == 6);
    }
    forbidden += without.size();
  }
  EXPECT_GT(forbidden, 40U);
}

TEST(DrawToken, IsBiased) {
  for (const auto& golden : golden_lines("ngrams.jsonl")) {
    SCOPED_TRACE(golden.dump());
    SamplingOptions options{.greedy = true};
    for (const auto& pair : golden["bias"])
      options.bias_texts.push_back(fmt::format("{}={}", pair[0].dump(), pair[1].dump()));
    options.settle();
    const auto wanted = golden["biased"].get<std::vector<float>>();
    // Each next likeliest one, after the likelier ones are made impossible.
    std::vector<float> logits = {0, 1, 2, 3, 4, 5};
    std::vector<std::int32_t> order = {0, 1, 2, 3, 4, 5};
    std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
      return wanted[static_cast<std::size_t>(a)] > wanted[static_cast<std::size_t>(b)];
    });
    for (const std::int32_t id : order) {
      EXPECT_EQ(draw(logits, options, {{0, 0}}).front(), id);
      logits[static_cast<std::size_t>(id)] = -1000;
    }
  }
  // The shares too: of id 2 exp(-1 + 2.5) instead of exp(-1).
  const auto share = [](const SamplingOptions& options) { return frequencies(options)[2]; };
  const double others = std::exp(2) + std::exp(0.5) + std::exp(1) + std::exp(0);
  const double wanted = std::exp(1.5) / (others + std::exp(1.5));
  EXPECT_NEAR(share({.logit_bias = {{2, 2.5}}}), wanted, 0.012);
}

// The options of a golden line, and that draws give what is left and nothing else.
void expect_left(const nlohmann::json& golden) {
  SCOPED_TRACE(golden.dump());
  const auto threshold = golden.value("xtc_threshold", 0.0);
  const SamplingOptions options{.temperature = golden.value("temperature", 1.0),
                                .top_k = golden.value("top_k", 0),
                                .top_p = golden.value("top_p", 1.0),
                                .min_p = golden["min_p"].get<double>(),
                                .typical_p = golden["typical_p"].get<double>(),
                                .top_n_sigma = golden.value("top_n_sigma", 0.0),
                                .xtc_probability = threshold > 0 ? 1.0 : 0.0,
                                .xtc_threshold = threshold > 0 ? threshold : 0.1};
  const auto left = golden["left"].get<std::set<std::int32_t>>();
  // No share is below 0.5 %, so that each is drawn but for one test in 10^4.
  const auto drawn = draw(golden["logits"].get<std::vector<float>>(), options, 3000);
  EXPECT_EQ(std::set<std::int32_t>(drawn.begin(), drawn.end()), left);
}

// tools/oracle/llama_samplers.cpp, typical.py.
TEST(DrawToken, IsLeftByFiltersOfLlamaCppAndTransformers) {
  int lines = 0;
  for (const auto& golden : golden_lines("llama_samplers.jsonl")) {
    if (!golden.contains("logits")) continue;
    expect_left(golden);
    ++lines;
  }
  for (const auto& golden : golden_lines("typical.jsonl")) {
    expect_left(golden);
    ++lines;
  }
  EXPECT_EQ(lines, 120);
}

// Each id that is drawn has the share that llama.cpp's dynamic temperature gives it, in fp32.
TEST(DrawToken, FollowsTheEntropyAsInLlamaCpp) {
  int lines = 0;
  for (const auto& golden : golden_lines("llama_samplers.jsonl")) {
    if (!golden.contains("dynamic_logits")) continue;
    SCOPED_TRACE(golden.dump());
    const SamplingOptions options{.temperature = golden["temperature"].get<double>(),
                                  .dynatemp_range = golden["dynatemp_range"].get<double>(),
                                  .dynatemp_exponent = golden["dynatemp_exponent"].get<double>()};
    const auto wanted = golden["probabilities"].get<std::vector<double>>();
    const Draws drawn = draws_of(golden["dynamic_logits"].get<std::vector<float>>(), options,
                                 first_places(100), {});
    for (std::size_t i = 0; i < drawn.ids.size(); ++i)
      EXPECT_NEAR(drawn.shares[i], wanted[static_cast<std::size_t>(drawn.ids[i])], 3e-6) << i;
    ++lines;
  }
  EXPECT_EQ(lines, 30);
}

// From equal logits the temperature is the highest, from one that has all weight the lowest.
TEST(DrawToken, HasTheTemperaturesOfTheRange) {
  const SamplingOptions options{.temperature = 0.5, .dynatemp_range = 0.75};
  const auto share = [&](const std::vector<float>& logits) {
    return draws_of(logits, options, first_places(1), {}).shares.front();
  };
  EXPECT_EQ(share({1, 1, 1, 1}), 0.25);
  EXPECT_EQ(share({9, -INFINITY, -INFINITY}), 1);
  EXPECT_EQ(share({900, -900, -900}), 1);
}

TEST(DrawToken, TakesTheStepsOfMirostatInLlamaCpp) {
  int steps = 0;
  for (const auto& golden : golden_lines("llama_samplers.jsonl")) {
    if (!golden.contains("mirostat_tau")) continue;
    SCOPED_TRACE(golden.dump());
    const SamplingOptions options{.mirostat = 2,
                                  .mirostat_rate = golden["mirostat_eta"].get<double>(),
                                  .mirostat_surprise = golden["mirostat_tau"].get<double>()};
    double most_surprise = options.first_most_surprise();
    for (const auto& step : golden["steps"]) {
      EXPECT_NEAR(most_surprise, step["most_surprise"].get<double>(), 5e-6);
      const Draws drawn = draws_of(step["logits"].get<std::vector<float>>(), options,
                                   first_places(1000), {.most_surprise = most_surprise});
      EXPECT_EQ(std::set<std::int32_t>(drawn.ids.begin(), drawn.ids.end()),
                step["left"].get<std::set<std::int32_t>>());
      const auto at = std::ranges::find(drawn.ids, step["drawn"].get<std::int32_t>());
      ASSERT_NE(at, drawn.ids.end());
      const double share = drawn.shares[static_cast<std::size_t>(at - drawn.ids.begin())];
      most_surprise = options.next_most_surprise(most_surprise, share);
      EXPECT_NEAR(most_surprise, step["next_most_surprise"].get<double>(), 5e-6);
      ++steps;
    }
  }
  EXPECT_EQ(steps, 90);
}

// The first choices are left out as often as the probability says.
TEST(DrawToken, LeavesOutTopChoicesAtTimes) {
  const SamplingOptions options{.xtc_probability = 0.3, .xtc_threshold = 0.1};
  const std::vector<double> all = softmax(1, {0, 1, 2, 3, 4});  // 0.55, 0.12, 0.03, 0.20, 0.07
  const std::vector<double> rest = softmax(1, {1, 2, 4});
  const std::vector<double> found = frequencies(options);
  for (std::size_t id = 0; id < all.size(); ++id)
    EXPECT_NEAR(found[id], 0.7 * all[id] + 0.3 * rest[id], 0.012) << id;
}

// Id 1 would repeat 1 2 3: it loses 2 * 1.75^(3 - 2) = 3.5 of its logit.
TEST(DrawToken, IsPenalizedForRuns) {
  SamplingOptions options{.greedy = true};
  const std::vector<float> logits{0, 4, 0, 0, 1.5F};
  const std::vector<std::int32_t> text{1, 2, 3, 1, 2, 3};
  EXPECT_EQ(draw(logits, options, {{0, 0}}, text).front(), 1);
  options.dry.multiplier = 2;
  EXPECT_EQ(draw(logits, options, {{0, 0}}, text).front(), 4);
  options.logit_bias = {{1, 0.75}};  // 1.25 is left
  EXPECT_EQ(draw(logits, options, {{0, 0}}, text).front(), 4);
  options.logit_bias = {{1, 1.25}};  // 1.75
  EXPECT_EQ(draw(logits, options, {{0, 0}}, text).front(), 1);
}

TEST(SamplingOptions, ReadBiases) {
  SamplingOptions options{.bias_texts = {"3=-2.5", "1=+4", "3=7"}};
  options.settle();
  EXPECT_EQ(options.logit_bias, (std::map<std::int32_t, double>{{1, 4}, {3, 7}}));
  for (const char* bad : {"3", "=1", "x=1", "-1=2", "3=", "3=1x", "3==1"}) {
    SamplingOptions wrong{.bias_texts = {bad}};
    EXPECT_THAT(message_of(Fault::kUsage, [&] { wrong.settle(); }),
                testing::HasSubstr("wanted ID=BIAS, as in 15=-2.5"));
  }
}

TEST(SamplingOptions, RefuseWhatCannotBe) {
  const auto refusal = [](const SamplingOptions& options) {
    return message_of(Fault::kUsage, [&] { options.check(100); });
  };
  EXPECT_THAT(refusal({.min_p = -0.1}),
              testing::HasSubstr("--min-p: got -0.1, wanted 0 <= p <= 1"));
  EXPECT_THAT(refusal({.typical_p = 0}), testing::HasSubstr("--typical-p: got 0, wanted 0 < p"));
  EXPECT_THAT(refusal({.top_n_sigma = -1}),
              testing::HasSubstr("--top-n-sigma: got -1, wanted 0 to 1000 (0: none)"));
  EXPECT_THAT(refusal({.xtc_probability = 1.5}),
              testing::HasSubstr("--xtc-probability: got 1.5, wanted 0 to 1 (0: none)"));
  EXPECT_THAT(refusal({.xtc_threshold = 0}),
              testing::HasSubstr("--xtc-threshold: got 0, wanted 0 < p <= 1"));
  EXPECT_THAT(refusal({.dynatemp_range = -1}),
              testing::HasSubstr("--dynatemp-range: got -1, wanted 0 to 100 (0: none)"));
  EXPECT_THAT(refusal({.dynatemp_exponent = NAN}),
              testing::HasSubstr("--dynatemp-exp: got nan, wanted 0 to 100"));
  EXPECT_THAT(refusal({.mirostat = 1}),
              testing::HasSubstr("--mirostat: got 1, wanted 0 (none) or"));
  EXPECT_THAT(refusal({.mirostat_rate = 0}),
              testing::HasSubstr("--mirostat-lr: got 0, wanted 0 < eta <= 1"));
  EXPECT_THAT(refusal({.mirostat_surprise = -1}),
              testing::HasSubstr("--mirostat-ent: got -1, wanted 0 to 100 bits"));
  EXPECT_THAT(refusal({.top_k = 4, .mirostat = 2}),
              testing::HasSubstr("--mirostat: chooses in place of --top-k, --top-p, --min-p"));
  EXPECT_THAT(refusal({.dynatemp_range = 1, .mirostat = 2}),
              testing::HasSubstr("--mirostat: chooses in place of --dynatemp-range; leave one"));
  EXPECT_THAT(refusal({.greedy = true, .mirostat = 2}),
              testing::HasSubstr("--mirostat: chooses in place of --greedy"));
  EXPECT_THAT(refusal({.dry = {.base = 0.5}}),
              testing::HasSubstr("--dry-base: got 0.5, wanted 1 to 1000"));
  EXPECT_THAT(refusal({.dry = {.last_tokens = -2}}),
              testing::HasSubstr("--dry-penalty-last-n: got -2, wanted -1"));
  EXPECT_THAT(refusal({.repetition_penalty = 0}),
              testing::HasSubstr("--repetition-penalty: got 0, wanted 0.01 to 100 (1: none)"));
  EXPECT_THAT(refusal({.no_repeat_ngram_size = -1}),
              testing::HasSubstr("--no-repeat-ngram-size: got -1, wanted 0"));
  EXPECT_THAT(refusal({.logit_bias = {{100, 1}}}),
              testing::HasSubstr("--logit-bias: got token 100, wanted 0 to 99"));
  EXPECT_THAT(refusal({.logit_bias = {{1, NAN}}}),
              testing::HasSubstr("--logit-bias: got nan, wanted -1000 to 1000"));
  EXPECT_THAT(refusal({.repetition_penalty = 1e-30}),
              testing::HasSubstr("--repetition-penalty: got 1e-30, wanted 0.01 to 100"));
  EXPECT_THAT(refusal({.presence_penalty = NAN}),
              testing::HasSubstr("--presence-penalty: got nan, wanted -1000 to 1000 (0: none)"));
  EXPECT_THAT(refusal({.frequency_penalty = -1e38}),
              testing::HasSubstr("--frequency-penalty: got -1e+38, wanted -1000 to 1000"));
  for (const double temperature : {0.0, -1.0, static_cast<double>(INFINITY), std::nan("")}) {
    EXPECT_THAT(refusal({.temperature = temperature}),
                testing::HasSubstr(
                    fmt::format("--temperature: got {}, wanted a number above 0", temperature)));
  }
  for (const double bad : {static_cast<double>(INFINITY), std::nan("")}) {
    EXPECT_THAT(refusal({.top_p = bad}), testing::HasSubstr("--top-p: got"));
    EXPECT_THAT(refusal({.min_p = bad}), testing::HasSubstr("--min-p: got"));
  }
}

// The largest penalties leave logits in the range of their type.
TEST(Sampling, UnderTheLargestPenaltiesStillDraws) {
  const std::vector<float> logits = {3e4F, -3e4F, 10.0F};
  for (const double sign : {-1.0, 1.0}) {
    for (const double repetition : {kLeastRepetitionPenalty, kMostRepetitionPenalty}) {
      const SamplingOptions options{.repetition_penalty = repetition,
                                    .presence_penalty = sign * kMostPenalty,
                                    .frequency_penalty = sign * kMostPenalty};
      EXPECT_GE(draw(logits, options, {{0, 0}}, {0, 1, 1}).front(), 0);
    }
  }
}

// Some id would come out, and look like an answer.
TEST(Sampling, AmongNumbersThatAreNoneIsRefused) {
  for (const float bad : {std::nanf(""), INFINITY}) {
    for (const std::size_t at : {0U, 2U}) {
      std::vector<float> logits = {1, 2, 3, 4};
      logits[at] = bad;
      for (const bool greedy : {true, false}) {
        EXPECT_EQ(draw(logits, {.greedy = greedy}, 1), std::vector<std::int32_t>{-1});
      }
      EXPECT_THAT(message_of(Fault::kData, [&] { token_of(logits, {}, 0); }),
                  testing::HasSubstr("the model's logits are not finite; are its weights"));
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
