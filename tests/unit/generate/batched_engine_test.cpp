// A request has the same tokens alone and next to others, whatever the limits are, after a prefix
// from the cache and after it lost its place. The oracle reads each text from its beginning for
// every token, without a cache.
#include "generate/batched_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "support/errors.h"
#include "unit/generate/small_engine.h"

namespace piton {
namespace {

using test::Loaded;
using test::oracle;
using test::oracles;
using test::prompt_of;
using test::run;
using test::small_model;
using test::Texts;
using test::various_requests;
using testing::HasSubstr;

TEST(BatchedEngine, GivesEachRequestItsTokensUnderAnyLimits) {
  Loaded loaded;
  std::vector<DecodingRequest> requests = various_requests();
  requests.front().ends = {60, oracle(loaded.inference, requests.front())[7]};
  const auto wanted = oracles(loaded.inference, requests);
  EXPECT_LE(wanted.front().size(), 8U);
  EXPECT_NE(wanted[3], wanted[4]) << "samples of one prompt";
  for (const DecodingLimits& limits :
       {DecodingLimits{}, DecodingLimits{.texts = 1}, DecodingLimits{.texts = 3},
        DecodingLimits{.prompt_tokens = 7}, DecodingLimits{.prompt_tokens = 100},
        DecodingLimits{.cache_tokens = 1}, DecodingLimits{.cache_tokens = 400}}) {
    SCOPED_TRACE(fmt::format("{} texts, {} tokens of prompts, {} of the cache", limits.texts,
                             limits.prompt_tokens, limits.cache_tokens));
    const auto engine = make_batched_engine(loaded.inference, limits);
    for (int round = 0; round < 2; ++round) {  // the second time the prompts are known
      for (const DecodingRequest& request : requests) engine->submit(request);
      std::map<std::int64_t, FinishReason> finished;
      const auto first = static_cast<std::int64_t>(round * requests.size());
      Texts texts = run(*engine, &finished);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        const std::int64_t number = first + static_cast<std::int64_t>(i);
        EXPECT_EQ(texts[number], wanted[i]) << "round " << round << ", request " << i;
        EXPECT_EQ(finished[number], i == 0 ? FinishReason::kStop : FinishReason::kLength) << i;
      }
    }
    const DecodingCounts counts = engine->counts();
    EXPECT_EQ(counts.running + counts.waiting, 0);
    EXPECT_EQ(counts.prompt_tokens, 2 * (5 + 150 + 130 + 1 + 1 + 64 + 40 + 250 + 9 + 9));
    if (limits.cache_tokens == 0 && limits.texts > 7) {  // else the cache forgets some
      EXPECT_GE(counts.reused_tokens, 128 + 4 + 149 + 129 + 63 + 249);
    }
  }
}

// Three tokens of one residue class, then the end.
class EveryFifth final : public TokenConstraint {
 public:
  explicit EveryFifth(std::int64_t count) : left_(count) {}
  void allow(std::vector<bool>& allowed) override {
    for (std::size_t id = 0; id < allowed.size(); id += 5) {
      EXPECT_FALSE(allowed[id]);
      allowed[id] = true;
    }
  }
  void advance(std::int32_t id) override {
    EXPECT_EQ(id % 5, 0);
    --left_;
  }
  bool done() const override { return left_ <= 0; }

 private:
  std::int64_t left_;
};

// Guesses right ones, wrong ones, none, and right ones that become wrong.
class VariousDrafts final : public Drafter {
 public:
  explicit VariousDrafts(std::vector<std::vector<std::int32_t>> texts) : texts_(std::move(texts)) {}
  std::int64_t most() const override { return 5; }
  std::vector<std::vector<std::int32_t>> drafts(std::span<const DraftRequest> requests) override {
    std::vector<std::vector<std::int32_t>> all;
    for (const DraftRequest& request : requests) {
      std::vector<std::int32_t>& guess = all.emplace_back();
      ++calls_;
      for (const std::vector<std::int32_t>& text : texts_) {
        if (text.size() <= request.ids.size() ||
            !std::equal(request.ids.begin(), request.ids.end(), text.begin()))
          continue;
        guess.assign(text.begin() + std::ssize(request.ids), text.end());
      }
      guess.resize(std::min(guess.size(), static_cast<std::size_t>(request.most)));
      if (calls_ % 4 == 0) guess.clear();
      if (calls_ % 4 == 1 && !guess.empty()) guess.back() = (guess.back() + 1) % 61;
      if (calls_ % 4 == 2) guess.assign(static_cast<std::size_t>(request.most), 3);
      EXPECT_GE(request.most, 1);
    }
    return all;
  }

 private:
  std::vector<std::vector<std::int32_t>> texts_;
  std::int64_t calls_ = 0;
};

TEST(BatchedEngine, GivesTheSameTokensWithGuessesOfThem) {
  Loaded loaded;
  std::vector<DecodingRequest> requests = various_requests();
  requests.front().ends = {60, oracle(loaded.inference, requests.front())[7]};
  const auto wanted = oracles(loaded.inference, requests);
  std::vector<std::vector<std::int32_t>> texts;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    texts.push_back(requests[i].prompt);
    texts.back().insert(texts.back().end(), wanted[i].begin(), wanted[i].end());
  }
  VariousDrafts drafter(texts);
  for (const DecodingLimits& limits :
       {DecodingLimits{}, DecodingLimits{.texts = 1}, DecodingLimits{.prompt_tokens = 7},
        DecodingLimits{.cache_tokens = 1}, DecodingLimits{.cache_tokens = 400}}) {
    SCOPED_TRACE(fmt::format("{} texts, {} tokens of prompts, {} of the cache", limits.texts,
                             limits.prompt_tokens, limits.cache_tokens));
    const auto engine = make_batched_engine(loaded.inference, limits, &drafter);
    for (const DecodingRequest& request : requests) engine->submit(request);
    std::map<std::int64_t, FinishReason> finished;
    Texts got = run(*engine, &finished);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(got[static_cast<std::int64_t>(i)], wanted[i]) << i;
      EXPECT_EQ(finished[static_cast<std::int64_t>(i)],
                i == 0 ? FinishReason::kStop : FinishReason::kLength);
    }
    const DecodingCounts counts = engine->counts();
    EXPECT_GT(counts.accepted_tokens, 0);
    EXPECT_GT(counts.draft_tokens, counts.accepted_tokens);
    // What is in the cache is what was written: other texts can begin with it.
    DecodingRequest again{.prompt = texts[1], .sampling = {.max_new_tokens = 3, .greedy = true}};
    const std::vector<std::int32_t> more = oracle(loaded.inference, again);
    engine->submit(std::move(again));
    EXPECT_EQ(run(*engine).begin()->second, more);
  }
}

// A model that guesses for itself is always right; a constraint leaves nothing to guess.
TEST(BatchedEngine, IsAlwaysRightAboutItself) {
  Loaded loaded;
  const auto other = make_batched_engine(loaded.inference, {});
  const auto drafter = make_model_drafter(*other, 256, 3);
  const auto engine = make_batched_engine(loaded.inference, {}, drafter.get());
  const DecodingRequest request{.prompt = prompt_of(70),
                                .sampling = {.max_new_tokens = 21, .greedy = true}};
  engine->submit(request);
  engine->submit({.prompt = prompt_of(20),
                  .sampling = {.max_new_tokens = 6, .greedy = true},
                  .constraint = std::make_shared<EveryFifth>(6)});
  EXPECT_EQ(run(*engine).at(0), oracle(loaded.inference, request));
  // One token with the prompt, then 5 times three guesses and the one after them.
  const DecodingCounts counts = engine->counts();
  EXPECT_EQ(counts.draft_tokens, 15);
  EXPECT_EQ(counts.accepted_tokens, 15);
  EXPECT_EQ(counts.drafted_steps, 5);
  EXPECT_EQ(counts.computed_tokens, 70 + 1 + 5 * 4 + 5) << "the second prompt begins the first";
}

// One that waits for the prompt of another begins with its pages.
TEST(BatchedEngine, ReadsWhatTwoPromptsShareOnce) {
  Loaded loaded;
  const auto engine = make_batched_engine(loaded.inference, {.prompt_tokens = 50});
  for (std::uint64_t draw = 0; draw < 3; ++draw) {
    engine->submit(
        {.prompt = prompt_of(140), .sampling = {.max_new_tokens = 4, .seed = 5}, .draw = draw});
  }
  const Texts texts = run(*engine);
  const DecodingCounts counts = engine->counts();
  EXPECT_EQ(counts.reused_tokens, 2 * 128);
  EXPECT_EQ(counts.computed_tokens, 140 + 2 * 12 + 3 * 3);
  EXPECT_EQ(counts.generated_tokens, 12);
  for (std::uint64_t draw = 0; draw < 3; ++draw) {
    EXPECT_EQ(texts.at(static_cast<std::int64_t>(draw)),
              oracle(loaded.inference, {.prompt = prompt_of(140),
                                        .sampling = {.max_new_tokens = 4, .seed = 5},
                                        .draw = draw}));
  }
}

// Requests that come while others are written do not wait for their ends.
TEST(BatchedEngine, TakesRequestsAtAnyTime) {
  Loaded loaded;
  const auto engine = make_batched_engine(loaded.inference, {.prompt_tokens = 30});
  const DecodingRequest slow{.prompt = prompt_of(9),
                             .sampling = {.max_new_tokens = 60, .greedy = true}};
  const DecodingRequest quick{.prompt = prompt_of(100, 1),
                              .sampling = {.max_new_tokens = 3, .greedy = true}};
  engine->submit(slow);
  Texts texts = run(*engine, nullptr, 10);
  engine->submit(quick);
  Texts more = run(*engine, nullptr, 3);  // the new one, or the old one's next three
  while (more[1].size() < 3) {
    for (const DecodingEvent& event : engine->step()) more[event.request].push_back(event.token.id);
  }
  EXPECT_EQ(more[1], oracle(loaded.inference, quick));
  EXPECT_LT(texts[0].size() + more[0].size(), 20U) << "the first one still runs";
  EXPECT_GE(more[0].size(), 3U) << "and got a token in every pass";
  EXPECT_FALSE(engine->idle());
  texts[0].insert(texts[0].end(), more[0].begin(), more[0].end());
  const Texts rest = run(*engine);
  texts[0].insert(texts[0].end(), rest.at(0).begin(), rest.at(0).end());
  EXPECT_EQ(texts[0], oracle(loaded.inference, slow));
}

TEST(BatchedEngine, ForgetsRequestsThatAreCanceled) {
  Loaded loaded;
  const auto engine = make_batched_engine(loaded.inference, {.texts = 1});
  const DecodingRequest request{.prompt = prompt_of(70),
                                .sampling = {.max_new_tokens = 50, .greedy = true}};
  for (int i = 0; i < 3; ++i) engine->submit(request);
  run(*engine, nullptr, 2);
  engine->cancel(1);  // waits
  engine->cancel(0);  // runs
  engine->cancel(77);
  EXPECT_EQ(engine->counts().running, 0);
  EXPECT_EQ(engine->counts().waiting, 1);
  std::vector<std::int32_t> text;
  while (!engine->idle()) {
    for (const DecodingEvent& event : engine->step()) {
      EXPECT_EQ(event.request, 2);
      EXPECT_EQ(event.reused_tokens, 69) << "of the first one, all but the last";
      text.push_back(event.token.id);
    }
  }
  EXPECT_EQ(text, oracle(loaded.inference, request));
  EXPECT_EQ(engine->counts().reused_tokens, 69);
}

TEST(BatchedEngine, RefusesRequestsThatCannotBe) {
  Loaded loaded;
  const auto engine = make_batched_engine(loaded.inference, {});
  const auto refusal = [&](const DecodingRequest& request) {
    return message_of(Fault::kUsage, [&] { engine->submit(request); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("the prompt is empty"));
  EXPECT_THAT(refusal({.prompt = {61}}), HasSubstr("holds id 61, wanted 0 to 60"));
  EXPECT_THAT(refusal({.prompt = prompt_of(256)}),
              HasSubstr("has 256 tokens and the model takes 256"));
  EXPECT_THAT(
      refusal({.prompt = prompt_of(258), .sampling = {.max_new_tokens = 0}, .scored_from = 1}),
      HasSubstr("score: 257 tokens, and the model takes 256"));
  EXPECT_THAT(refusal({.prompt = {1, 2},
                       .sampling = {.max_new_tokens = 0},
                       .scored_from = 1,
                       .alternatives = {61}}),
              HasSubstr("score: id 61 is outside of the vocabulary; wanted 0 to 60"));
  EXPECT_THAT(refusal({.prompt = {1}, .sampling = {.min_p = 2}}), HasSubstr("--min-p: got 2"));
  EXPECT_TRUE(engine->idle());
  EXPECT_EQ(engine->counts().prompt_tokens, 0);
}

TEST(BatchedEngine, ChoosesAmongTheTokensThatAConstraintAllows) {
  Loaded loaded;
  const auto engine = make_batched_engine(loaded.inference, {});
  for (const bool greedy : {true, false}) {
    engine->submit({.prompt = prompt_of(20),
                    .sampling = {.max_new_tokens = 30, .greedy = greedy, .seed = 4},
                    .constraint = std::make_shared<EveryFifth>(12)});
  }
  engine->submit({.prompt = {3}, .constraint = std::make_shared<EveryFifth>(0)});
  std::map<std::int64_t, FinishReason> finished;
  const Texts texts = run(*engine, &finished);
  for (const std::int64_t request : {0, 1}) {
    ASSERT_EQ(texts.at(request).size(), 12U);
    for (const std::int32_t id : texts.at(request)) EXPECT_EQ(id % 5, 0);
    EXPECT_EQ(finished[request], FinishReason::kStop);
  }
  EXPECT_NE(texts.at(0), texts.at(1));
  EXPECT_EQ(texts.at(2), std::vector<std::int32_t>{-1}) << "nothing could follow";
}

// The log-probability is the model's, with and without penalties.
TEST(BatchedEngine, GivesTheModelsProbabilities) {
  Loaded loaded;
  const auto engine = make_batched_engine(loaded.inference, {});
  const std::vector<std::int32_t> prompt = prompt_of(12);
  for (const double penalty : {1.0, 3.0}) {
    engine->submit({.prompt = prompt,
                    .sampling = {.max_new_tokens = 1,
                                 .greedy = true,
                                 .repetition_penalty = penalty,
                                 .log_probabilities = 61}});
  }
  const std::vector<DecodingEvent> events = engine->step();
  ASSERT_EQ(events.size(), 2U);
  const std::vector<float> logits = loaded.inference.whole_vocabulary(
      loaded.inference.logits(prompt, 1, std::vector<std::int32_t>{11}));
  for (const DecodingEvent& event : events) {
    ASSERT_EQ(event.token.likeliest.size(), 61U);
    EXPECT_NEAR(event.token.log_probability,
                logits[static_cast<std::size_t>(event.token.id)] - log_sum_exp(logits), 1e-5);
    EXPECT_NEAR(event.token.likeliest[3].log_probability,
                likeliest_tokens(logits, 4)[3].log_probability, 1e-5);
  }
}

// Angles that depend on the length of a text are those of this text: neighbors, the number of
// tokens that may follow, chunks and lost places change nothing.
TEST(BatchedEngine, GivesTextsTheAnglesOfTheirOwnLength) {
  for (const auto kind : {RotaryScaling::Kind::kDynamic, RotaryScaling::Kind::kLongrope}) {
    ModelConfig model = small_model();
    model.rotary_scaling = {.kind = kind, .factor = 4, .original_positions = 80};
    if (kind == RotaryScaling::Kind::kLongrope) {
      model.rotary_scaling.short_factors = {1, 1, 1.1, 1.2};
      model.rotary_scaling.long_factors = {1.5, 2, 3, 4};
    }
    Loaded loaded(model);
    const auto request = [&](std::int64_t length, std::int64_t more) {
      return DecodingRequest{.prompt = prompt_of(length, length),
                             .sampling = {.max_new_tokens = more, .greedy = true}};
    };
    const std::vector<DecodingRequest> requests{request(10, 20), request(100, 30), request(70, 60),
                                                request(150, 5), request(10, 100)};
    std::vector<std::vector<std::int32_t>> wanted;
    for (const DecodingRequest& one : requests) {
      const auto alone = make_batched_engine(loaded.inference, {});
      alone->submit(one);
      wanted.push_back(run(*alone).at(0));
      // Where all tokens have the angles of the text so far, that is what a reader has.
      if (kind == RotaryScaling::Kind::kLongrope) {
        EXPECT_EQ(wanted.back(), oracle(loaded.inference, one));
      }
    }
    for (const DecodingLimits& limits : {DecodingLimits{}, DecodingLimits{.prompt_tokens = 33},
                                         DecodingLimits{.cache_tokens = 1}}) {
      const auto engine = make_batched_engine(loaded.inference, limits);
      for (const DecodingRequest& one : requests) engine->submit(one);
      const Texts texts = run(*engine);
      for (std::size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(texts.at(static_cast<std::int64_t>(i)), wanted[i]) << i;
    }
    wanted.back().resize(20);
    EXPECT_EQ(wanted.back(), wanted.front()) << "more tokens may follow, and these are the same";
  }
}

}  // namespace
}  // namespace piton
