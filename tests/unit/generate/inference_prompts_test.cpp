// Texts of models whose prompts see themselves (ModelConfig::prefix) are those of the pass that
// trains them, which reads a text from its beginning for every token and is compared with PyTorch
// in tests/unit/api/model_masks_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "generate/beam_search.h"
#include "generate/continuations.h"
#include "unit/generate/small_engine.h"

namespace piton {
namespace {

using test::Loaded;
using test::prompt_of;
using test::small_model;

using Ids = std::vector<std::int32_t>;

enum class Kind : std::uint8_t { kRotary, kAlibi, kLatent };

ModelConfig with_prompts(Kind kind) {
  ModelConfig model = kind == Kind::kLatent ? test::small_model_with_latents() : small_model();
  model.prefix = true;
  if (kind != Kind::kAlibi) return model;
  model.positions = PositionKind::kAlibi;
  model.alibi = AlibiKind::kDistance;
  return model;
}

// Log-probabilities after the last of `ids`, whose first `prompt` tokens see one another.
std::vector<double> after(Loaded& loaded, const Ids& ids, std::int64_t prompt) {
  const std::int64_t rows = std::ssize(ids);
  MicroBatch batch{.samples = 1, .sequence = rows, .tokens = ids};
  for (std::int64_t row = 0; row < rows; ++row) {
    batch.labels.push_back(row + 1 < prompt ? kNoLabel : 0);
    batch.loss_mask.push_back(row + 1 < prompt ? 0.0F : 1.0F);
    batch.positions.push_back(static_cast<std::int32_t>(row));
  }
  std::vector<ModelInput> inputs = {loaded.session.upload(batch, {})};
  inputs[0].wanted = {.loss = false, .logits = true};
  std::vector<double> all;
  loaded.session.pipeline().forward(
      loaded.session.context(false), inputs, [&](int, ChunkOutput& output) {
        for (const float one :
             loaded.inference.whole_vocabulary(output.logits.slice(0, rows - 1, 1)))
          all.push_back(one);
      });
  const double largest = *std::ranges::max_element(all);
  double sum = 0;
  for (const double one : all) sum += std::exp(one - largest);
  for (double& one : all) one -= largest + std::log(sum);
  return all;
}

std::int32_t likeliest(const std::vector<double>& all) {
  return static_cast<std::int32_t>(std::ranges::max_element(all) - all.begin());
}

Ids greedy_text(Loaded& loaded, const Ids& prompt, std::int64_t tokens) {
  Ids ids = prompt;
  for (std::int64_t i = 0; i < tokens; ++i)
    ids.push_back(likeliest(after(loaded, ids, std::ssize(prompt))));
  return {ids.begin() + std::ssize(prompt), ids.end()};
}

class PromptMask : public testing::TestWithParam<Kind> {};

TEST_P(PromptMask, GivesTheTextsOfTheTrainedModelUnderAnyLimits) {
  Loaded loaded(with_prompts(GetParam()));
  ModelConfig causal = with_prompts(GetParam());
  causal.prefix = false;
  Loaded other(causal);
  std::vector<DecodingRequest> requests;
  std::vector<Ids> wanted;
  bool differs = false;
  // The second and the third begin alike, and no part of a prompt is the same for both.
  for (const auto& [length, seed] : {std::pair{5, 0}, {150, 0}, {130, 0}, {1, 8}, {64, 2}}) {
    const SamplingOptions greedy{.max_new_tokens = 12, .greedy = true};
    requests.push_back({.prompt = prompt_of(length, seed), .sampling = greedy});
    wanted.push_back(greedy_text(loaded, requests.back().prompt, 12));
    differs = differs || greedy_text(other, requests.back().prompt, 12) != wanted.back();
  }
  EXPECT_TRUE(differs) << "the mask changes nothing";
  for (const DecodingLimits& limits :
       {DecodingLimits{}, DecodingLimits{.texts = 1}, DecodingLimits{.prompt_tokens = 7},
        DecodingLimits{.prompt_tokens = 140}, DecodingLimits{.cache_tokens = 1}}) {
    SCOPED_TRACE(fmt::format("{} texts, {} tokens of prompts, {} of the cache", limits.texts,
                             limits.prompt_tokens, limits.cache_tokens));
    const auto engine = make_batched_engine(loaded.inference, limits);
    for (int round = 0; round < 2; ++round) {
      for (const DecodingRequest& request : requests) engine->submit(request);
      test::Texts texts = test::run(*engine);
      for (std::size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(texts[round * std::ssize(requests) + static_cast<std::int64_t>(i)], wanted[i])
            << "round " << round << ", request " << i;
    }
    EXPECT_EQ(engine->counts().reused_tokens, 0);
  }
}

TEST_P(PromptMask, IsThatOfAContextWhoseContinuationIsScored) {
  Loaded loaded(with_prompts(GetParam()));
  std::vector<ContinuationRequest> requests;
  std::vector<double> wanted;
  for (const std::size_t given : {1, 20, 90}) {
    requests.push_back({.ids = prompt_of(static_cast<std::int64_t>(given) + 6), .given = given});
    double sum = 0;
    const Ids& ids = requests.back().ids;
    for (std::size_t end = given; end < ids.size(); ++end) {
      const Ids before(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(end));
      sum += after(loaded, before,
                   static_cast<std::int64_t>(given))[static_cast<std::size_t>(ids[end])];
    }
    wanted.push_back(sum);
  }
  for (const std::int64_t prompt_tokens : {512, 16}) {
    const auto engine = make_batched_engine(loaded.inference, {.prompt_tokens = prompt_tokens});
    const auto scores = score_continuations(*engine, requests);
    for (std::size_t i = 0; i < requests.size(); ++i)
      EXPECT_NEAR(scores[i].log_likelihood, wanted[i], 1e-4) << i;
  }
}

TEST_P(PromptMask, IsThatOfBeams) {
  Loaded loaded(with_prompts(GetParam()));
  const Ids prompt = prompt_of(70, 3);
  const std::vector<Beam> beams = beam_search(
      loaded.inference, {.ids = prompt}, {.num_beams = 3},
      {.max_new_tokens = 8, .ends = [](std::span<const LikelyToken>) { return false; }});
  ASSERT_EQ(beams.size(), 3U);
  for (const Beam& beam : beams) {
    Ids ids = prompt;
    for (const LikelyToken& token : beam.tokens) {
      const std::vector<double> all = after(loaded, ids, std::ssize(prompt));
      EXPECT_NEAR(token.log_probability, all[static_cast<std::size_t>(token.id)], 1e-4);
      ids.push_back(token.id);
    }
  }
}

std::string name_of(const testing::TestParamInfo<Kind>& info) {
  if (info.param == Kind::kLatent) return "Latent";
  return info.param == Kind::kAlibi ? "Alibi" : "Rotary";
}

INSTANTIATE_TEST_SUITE_P(Models, PromptMask,
                         testing::Values(Kind::kRotary, Kind::kAlibi, Kind::kLatent), name_of);

}  // namespace
}  // namespace piton
