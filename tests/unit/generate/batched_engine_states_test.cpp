// Models whose layers have states: a request has the same tokens alone and next to others, after it
// lost its place, and where it begins with another text as a whole.
#include <gtest/gtest.h>

#include <utility>

#include "generate/batched_engine.h"
#include "unit/generate/small_engine.h"

namespace piton {
namespace {

using test::Loaded;
using test::oracle;
using test::oracles;
using test::prompt_of;
using test::run;
using test::Texts;
using test::various_requests;

DecodingRequest greedy(std::vector<std::int32_t> prompt, std::int64_t tokens = 12) {
  return {.prompt = std::move(prompt), .sampling = {.max_new_tokens = tokens, .greedy = true}};
}

// What a conversation continues with: the text so far, and more.
std::vector<std::int32_t> joined(std::vector<std::int32_t> a, const std::vector<std::int32_t>& b,
                                 const std::vector<std::int32_t>& c) {
  a.insert(a.end(), b.begin(), b.end());
  a.insert(a.end(), c.begin(), c.end());
  return a;
}

class TextsWithStates : public testing::TestWithParam<std::string> {
 protected:
  static ModelConfig model() { return test::kModelsWithStates.at(GetParam())(); }
};

std::int64_t reused(const DecodingEngine& engine) { return engine.counts().reused_tokens; }

TEST_P(TextsWithStates, HaveTheirTokensUnderAnyLimits) {
  Loaded loaded(model());
  const std::vector<DecodingRequest> requests = various_requests();
  const auto wanted = oracles(loaded.inference, requests);
  for (const DecodingLimits& limits :
       {DecodingLimits{}, DecodingLimits{.texts = 1},
        DecodingLimits{.texts = 2, .prompt_tokens = 7}, DecodingLimits{.prompt_tokens = 100},
        DecodingLimits{.cache_tokens = 400}}) {
    SCOPED_TRACE(
        fmt::format("{} texts, {} tokens of the cache", limits.texts, limits.cache_tokens));
    const auto engine = make_batched_engine(loaded.inference, limits);
    for (int round = 0; round < 3; ++round) {
      for (const DecodingRequest& request : requests) engine->submit(request);
      const auto first = static_cast<std::int64_t>(round * requests.size());
      Texts texts = run(*engine);
      for (std::size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(texts[first + static_cast<std::int64_t>(i)], wanted[i]) << "request " << i;
    }
    EXPECT_GT(reused(*engine), 0);
  }
}

TEST_P(TextsWithStates, AConversationContinuesWhereItEnded) {
  Loaded loaded(model());
  const auto engine = make_batched_engine(loaded.inference, {});
  std::vector<std::int32_t> text = prompt_of(50);
  for (int turn = 0; turn < 3; ++turn) {
    const DecodingRequest request = greedy(text);
    const std::int64_t before = reused(*engine);
    const std::int64_t number = engine->submit(request);
    const std::vector<std::int32_t> answer = run(*engine)[number];
    EXPECT_EQ(answer, oracle(loaded.inference, request)) << "turn " << turn;
    // All but its last token, which nobody has read.
    const std::int64_t last = std::ssize(text) - 5 - 1;
    EXPECT_EQ(reused(*engine) - before, turn == 0 ? 0 : last) << "turn " << turn;
    text = joined(text, answer, prompt_of(5, turn + 1));
  }
}

// The first one is read up to where the next ones differ, which then begin there.
TEST_P(TextsWithStates, WaitForWhatTheyBeginWith) {
  Loaded loaded(model());
  std::vector<DecodingRequest> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(greedy(joined(prompt_of(100), {i}, prompt_of(9))));
  requests.push_back(requests.back());
  for (const std::int64_t texts : {256, 1}) {
    const auto engine = make_batched_engine(loaded.inference, {.texts = texts});
    for (const DecodingRequest& request : requests) engine->submit(request);
    Texts results = run(*engine);
    const auto wanted = oracles(loaded.inference, requests);
    for (std::size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(results[static_cast<std::int64_t>(i)], wanted[i]) << "request " << i;
    EXPECT_EQ(reused(*engine), 3 * 100 + 109) << texts;
    EXPECT_EQ(engine->counts().computed_tokens, 5 * (110 + 11) - reused(*engine)) << texts;
  }
}

// A long prompt is kept before its end, where the next one may differ.
TEST_P(TextsWithStates, ALongPromptIsKeptBeforeItsEnd) {
  Loaded loaded(model());
  const auto engine = make_batched_engine(loaded.inference, {.prompt_tokens = 32});
  for (const std::int32_t last : {1, 2}) {
    const DecodingRequest request = greedy(joined(prompt_of(100), {last}, {7, 9}));
    const std::int64_t number = engine->submit(request);
    EXPECT_EQ(run(*engine)[number], oracle(loaded.inference, request));
  }
  EXPECT_EQ(reused(*engine), 96);
}

TEST_P(TextsWithStates, AreForgottenWhereTheCacheIsFull) {
  Loaded loaded(model());
  const auto engine = make_batched_engine(loaded.inference, {.cache_tokens = 256});
  const DecodingRequest first = greedy(prompt_of(50));
  engine->submit(first);
  run(*engine);
  const DecodingRequest long_one = greedy(prompt_of(240, 5));
  const std::int64_t number = engine->submit(long_one);
  EXPECT_EQ(run(*engine)[number], oracle(loaded.inference, long_one));
  const std::int64_t again = engine->submit(greedy(joined(prompt_of(50), {}, prompt_of(9))));
  EXPECT_EQ(run(*engine)[again],
            oracle(loaded.inference, greedy(joined(prompt_of(50), {}, prompt_of(9)))));
  EXPECT_EQ(reused(*engine), 0);
}

INSTANTIATE_TEST_SUITE_P(Rules, TextsWithStates,
                         testing::Values("delta", "state_space", "convolutions"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace piton
