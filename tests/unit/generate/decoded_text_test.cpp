// Prompts whose tokens are scored, alone and next to texts that are written.
#include "generate/decoded_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "unit/generate/small_engine.h"

namespace piton {
namespace {

using test::Loaded;
using test::oracle;
using test::prompt_of;
using test::small_model;

// What an engine says about tokens of prompts is what whole texts say, however the prompts are read
// and whatever they share; what they share is read once.
TEST(DecodedText, ScoresTokensOfPrompts) {
  for (const auto kind : {RotaryScaling::Kind::kNone, RotaryScaling::Kind::kDynamic,
                          RotaryScaling::Kind::kLongrope}) {
    ModelConfig model = small_model();
    if (kind != RotaryScaling::Kind::kNone)
      model.rotary_scaling = {.kind = kind, .factor = 4, .original_positions = 80};
    if (kind == RotaryScaling::Kind::kLongrope) {
      model.rotary_scaling.short_factors = {1, 1, 1.1, 1.2};
      model.rotary_scaling.long_factors = {1.5, 2, 3, 4};
    }
    Loaded loaded(model);
    std::vector<DecodingRequest> requests;
    const auto add = [&](std::int64_t shared, std::int64_t own, std::int64_t scored) {
      DecodingRequest& request = requests.emplace_back();
      request.prompt = prompt_of(shared);
      for (const std::int32_t id : prompt_of(own, 10 + std::ssize(requests)))
        request.prompt.push_back(id);
      request.sampling = {.max_new_tokens = 0, .log_probabilities = 2};
      request.scored_from = std::ssize(request.prompt) - scored;
    };
    add(30, 20, 20);
    add(30, 9, 9);
    add(30, 9, 3);
    requests.back().alternatives = {7, 8};
    add(70, 100, 40);
    add(70, 90, 1);
    add(257, 0, 256);  // as long as can be, and all of it
    add(0, 2, 1);
    for (const DecodingLimits& limits :
         {DecodingLimits{}, DecodingLimits{.texts = 1}, DecodingLimits{.prompt_tokens = 7},
          DecodingLimits{.cache_tokens = 1}}) {
      const auto engine = make_batched_engine(loaded.inference, limits);
      // With texts that are written.
      engine->submit({.prompt = prompt_of(40), .sampling = {.max_new_tokens = 9, .greedy = true}});
      for (const DecodingRequest& one : requests) engine->submit(one);
      std::map<std::int64_t, std::vector<GeneratedToken>> scored;
      while (!engine->idle()) {
        for (DecodingEvent& event : engine->step()) {
          if (event.request == 0) continue;
          EXPECT_EQ(event.finish, FinishReason::kLength);
          EXPECT_EQ(event.token.id, -1);
          scored[event.request - 1] = std::move(event.scored);
        }
      }
      for (std::size_t i = 0; i < requests.size(); ++i) {
        const DecodingRequest& one = requests[i];
        std::vector<std::int32_t> wanted(one.prompt.begin() + one.scored_from, one.prompt.end());
        wanted.insert(wanted.end(), one.alternatives.begin(), one.alternatives.end());
        const std::vector<GeneratedToken>& got = scored[static_cast<std::int64_t>(i)];
        ASSERT_EQ(got.size(), wanted.size()) << i;
        const auto read = std::span(one.prompt).first(one.prompt.size() - 1);
        const std::vector<float> logits =
            loaded.inference.whole_vocabulary(loaded.inference.logits(read, 1));
        for (std::size_t k = 0; k < got.size(); ++k) {
          const auto row =
              std::min(static_cast<std::size_t>(one.scored_from) - 1 + k, read.size() - 1);
          const auto of_row = std::span(logits).subspan(row * 61, 61);
          EXPECT_EQ(got[k].id, wanted[k]);
          EXPECT_NEAR(got[k].log_probability,
                      of_row[static_cast<std::size_t>(wanted[k])] - log_sum_exp(of_row), 1e-5)
              << "request " << i << ", token " << k;
          ASSERT_EQ(got[k].likeliest.size(), 2U);
          EXPECT_EQ(got[k].likeliest[0].id, likeliest_tokens(of_row, 1)[0].id);
        }
      }
    }
  }
}

TEST(DecodedText, HasTheSameTokensWithThreads) {
  constexpr std::int64_t kWidth = 61;
  DecodedText text;
  text.request = {.prompt = prompt_of(40),
                  .sampling = {.max_new_tokens = 0, .log_probabilities = 3},
                  .scored_from = 5,
                  .alternatives = {7, 8}};
  text.ids = text.request.prompt;
  const TextReading reading{.begin = 0, .end = text.to_read()};
  std::vector<float> logits(static_cast<std::size_t>(reading.rows(text) * kWidth));
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = static_cast<float>(hash64("logit", i) % 997) / 97.0F;
  // The numbers of tokens, in order.
  const auto numbers = [](const std::vector<GeneratedToken>& tokens) {
    std::vector<double> all;
    for (const GeneratedToken& token : tokens) {
      all.insert(all.end(), {static_cast<double>(token.id), token.log_probability});
      for (const LikelyToken& one : token.likeliest)
        all.insert(all.end(), {static_cast<double>(one.id), one.log_probability});
    }
    return all;
  };
  const std::vector<double> alone = numbers(tokens_of_rows(text, reading, logits, {}));
  EXPECT_EQ(alone.size(), (35U + 2U) * 8U);
  for (const int count : {1, 3}) {
    ThreadPool threads(count);
    EXPECT_EQ(numbers(tokens_of_rows(text, reading, logits, {}, &threads)), alone);
    std::vector<float> damaged = logits;
    damaged.back() = std::numeric_limits<float>::infinity();
    EXPECT_THROW(tokens_of_rows(text, reading, damaged, {}, &threads), Error);
  }
}

TEST(DecodedText, ComputesWhatScoredPromptsShareOnce) {
  Loaded loaded;
  const auto engine = make_batched_engine(loaded.inference, {});
  for (const std::int64_t own : {7, 8, 9, 10}) {
    DecodingRequest request{.prompt = prompt_of(50), .sampling = {.max_new_tokens = 0}};
    for (std::int64_t i = 0; i < own; ++i)
      request.prompt.push_back(static_cast<std::int32_t>((own + i) % 61));
    request.scored_from = 50;
    engine->submit(std::move(request));
  }
  test::run(*engine);
  // The last row of what is given is read for each.
  EXPECT_EQ(engine->counts().computed_tokens, 50 + 6 + (1 + 7) + (1 + 8) + (1 + 9));
  EXPECT_EQ(engine->counts().passes, 2) << "the others wait for the first one, and run together";
}

// With an echo: tokens of the prompt are scored, and the text continues.
TEST(DecodedText, ScoresAPromptThatItContinues) {
  Loaded loaded;
  const auto engine = make_batched_engine(loaded.inference, {.prompt_tokens = 8});
  DecodingRequest request{.prompt = prompt_of(20),
                          .sampling = {.max_new_tokens = 5, .greedy = true}};
  const std::vector<std::int32_t> wanted = oracle(loaded.inference, request);
  request.scored_from = 1;
  engine->submit(request);
  std::vector<std::int32_t> got;
  while (!engine->idle()) {
    for (const DecodingEvent& event : engine->step()) {
      EXPECT_EQ(event.scored.size(), got.empty() ? 19U : 0U);
      got.push_back(event.token.id);
    }
  }
  EXPECT_EQ(got, wanted);
}

}  // namespace
}  // namespace piton
