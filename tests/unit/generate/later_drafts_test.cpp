// Guesses by the model's own layer that predicts later tokens: its logits at inference are those of
// the training pass, which tests/unit/session/session_later_tokens_test.cpp compares with
// Megatron-core; and texts are the same with guesses and without.
#include "generate/later_drafts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "unit/generate/small_engine.h"

namespace piton {
namespace {

using test::Loaded;
using test::oracle;
using test::run;
using test::Texts;

// Few tokens, so that guesses of drawn weights are often right.
constexpr std::int64_t kTokens = 5;

ModelConfig later_model(const std::string& kind) {
  ModelConfig model = test::small_model();
  if (kind == "gpt2") {
    model = family_facts("gpt2");
    model.layers = 2;
    model.hidden = 32;
    model.heads = model.groups = 4;
    model.head_size = 8;
    model.ffn_hidden = 56;
    model.max_positions = 256;
    model.hidden_dropout = model.attention_dropout = 0;
    model.init_deviation = 0.3;
  } else if (kind == "experts") {
    model.experts = ExpertFacts{.experts = 4, .choices = 2, .ffn_hidden = 24};
  } else if (kind == "latents") {
    model = test::small_model_with_latents();
  } else if (kind == "dynamic") {
    model.rotary_scaling.kind = RotaryScaling::Kind::kDynamic;
    model.rotary_scaling.factor = 2;
    model.rotary_scaling.original_positions = 32;
  }
  model.vocabulary = kTokens;
  model.mtp_layers = 2;
  return model;
}

std::vector<std::int32_t> later_ids(std::int64_t length, std::int64_t seed = 0) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<std::int32_t>((i * i * (seed + 3) + i / 3 + seed) % kTokens));
  return ids;
}

// -log of the probability that the first of the layers gives `label` after row `row`, by the pass
// of training.
double loss_in_training(Session& session, const std::vector<std::int32_t>& ids, std::int64_t row,
                        std::int32_t label) {
  const std::int64_t rows = std::ssize(ids) - 1;  // the last one has no next token
  MicroBatch batch{.samples = 1, .sequence = rows + 1, .tokens = ids};
  batch.labels.assign(ids.size(), kNoLabel);
  batch.loss_mask.assign(ids.size(), 0.0F);
  batch.positions.resize(ids.size());
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  batch.labels[static_cast<std::size_t>(row + 1)] = label;  // moved by one row
  batch.loss_mask[static_cast<std::size_t>(row + 1)] = 1;
  return session.gradients({batch}, 0).figures.at(0).mean();
}

double loss_of(std::span<const float> logits, std::int32_t label) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::log(sum) - logits[static_cast<std::size_t>(label)];
}

class LaterDraftsOf : public testing::TestWithParam<std::string> {};

TEST_P(LaterDraftsOf, HaveTheLogitsOfTheTrainingPass) {
  const ModelConfig model = later_model(GetParam());
  test::HostMachine host;
  Mesh mesh(*host.world, MeshSizes{});
  Session training(host.machine, mesh, {.model = model, .seed = 3, .use = SessionUse::kGradients});
  training.initialize();
  Loaded loaded(model, true);
  EXPECT_EQ(loaded.session.settings().model.mtp_layers, 1);
  const std::vector<std::int32_t> ids = later_ids(100);
  const auto all = std::span(ids);
  KvCache cache = loaded.inference.make_later_cache();
  const std::int64_t text = cache.add_text();
  // In parts, as prompts are read: a page and more, one row, and the rest.
  std::int64_t begin = 0;
  for (const std::int64_t end : {70, 71, 99}) {
    const TextTokens part{
        .text = text,
        .ids = all.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
        .whole = std::ssize(ids)};
    const PassResults main = loaded.inference.logits_and_hidden(std::span(&part, 1), {}, cache);
    TextTokens next = part;
    next.ids =
        all.subspan(static_cast<std::size_t>(begin + 1), static_cast<std::size_t>(end - begin));
    next.from = begin;
    std::vector<std::int32_t> rows(static_cast<std::size_t>(end - begin));
    std::iota(rows.begin(), rows.end(), 0);
    const PassResults later =
        loaded.inference.later_tokens(std::span(&next, 1), main.hidden, rows, cache);
    EXPECT_EQ(cache.pages().length(text), end);
    const std::vector<float> logits = loaded.inference.whole_vocabulary(later.logits);
    for (std::int64_t row = begin; row < end; row += 9) {
      const auto of_row = std::span(logits).subspan(
          static_cast<std::size_t>((row - begin) * kTokens), static_cast<std::size_t>(kTokens));
      for (const std::int32_t label : {0, 2, 4}) {
        const double wanted = loss_in_training(training, ids, row, label);
        EXPECT_NEAR(loss_of(of_row, label), wanted, 1e-5 * (1 + wanted))
            << "row " << row << ", label " << label;
      }
    }
    begin = end;
  }
}

std::vector<DecodingRequest> later_requests() {
  std::vector<DecodingRequest> all;
  const auto add = [&](std::int64_t length, std::int64_t tokens, SamplingOptions sampling) {
    sampling.max_new_tokens = tokens;
    all.push_back({.prompt = later_ids(length, length), .sampling = sampling, .draw = all.size()});
  };
  add(5, 60, {.greedy = true});
  add(150, 40, {.greedy = true});
  add(1, 30, {.temperature = 0.8});
  add(64, 33, {.temperature = 1.3, .top_k = 3});
  add(250, 20, {.greedy = true});  // up to the longest sequence
  add(40, 25, {.repetition_penalty = 1.2});
  all.push_back(all[1]);  // begins with pages of another
  all.push_back({.prompt = later_ids(30), .sampling = {.max_new_tokens = 12, .mirostat = 2}});
  return all;
}

TEST_P(LaterDraftsOf, LeaveTextsAsTheyAreWithoutThem) {
  Loaded loaded(later_model(GetParam()), true);
  std::vector<DecodingRequest> requests = later_requests();
  requests[3].ends = {oracle(loaded.inference, requests[3]).at(20)};
  std::vector<std::vector<std::int32_t>> wanted;
  for (const DecodingRequest& one : requests) {
    if (GetParam() != "dynamic") {
      wanted.push_back(oracle(loaded.inference, one));
      continue;
    }
    // Rows in the cache keep the angles of a shorter text.
    const auto plain = make_batched_engine(loaded.inference, {});
    plain->submit(one);
    wanted.push_back(run(*plain).at(0));
  }
  for (const DecodingLimits& limits :
       {DecodingLimits{}, DecodingLimits{.texts = 1}, DecodingLimits{.prompt_tokens = 7},
        DecodingLimits{.cache_tokens = 1}, DecodingLimits{.cache_tokens = 400}}) {
    for (const std::int64_t most : {1, 4}) {
      SCOPED_TRACE(fmt::format("{} texts, {} tokens of prompts, {} of the cache, {} guesses",
                               limits.texts, limits.prompt_tokens, limits.cache_tokens, most));
      const auto engine =
          make_batched_engine(loaded.inference, limits, DraftSource::later_layer(most));
      for (const DecodingRequest& request : requests) engine->submit(request);
      Texts texts = run(*engine);
      for (std::size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(texts[static_cast<std::int64_t>(i)], wanted[i]) << i;
      const DecodingCounts counts = engine->counts();
      EXPECT_GT(counts.accepted_tokens, 0);
      EXPECT_GT(counts.draft_tokens, counts.accepted_tokens);
      EXPECT_LE(counts.draft_tokens, most * counts.drafted_steps);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LaterDraftsOf,
                         testing::Values("llama", "gpt2", "experts", "dynamic", "latents"),
                         [](const auto& one) { return one.param; });

// What the layer has in the pages of a text is there for texts that begin with them.
TEST(LaterDrafts, AreTheSameOfATextThatIsInTheCache) {
  Loaded loaded(later_model("llama"), true);
  const auto engine = make_batched_engine(loaded.inference, {}, DraftSource::later_layer(2));
  const DecodingRequest request{.prompt = later_ids(128 + 40),
                                .sampling = {.max_new_tokens = 50, .greedy = true}};
  engine->submit(request);
  run(*engine);
  const DecodingCounts first = engine->counts();
  EXPECT_EQ(first.reused_tokens, 0);
  engine->submit(request);
  run(*engine);
  const DecodingCounts both = engine->counts();
  EXPECT_GE(both.reused_tokens, 128 + 39);
  EXPECT_EQ(both.accepted_tokens, 2 * first.accepted_tokens);
  EXPECT_EQ(both.draft_tokens, 2 * first.draft_tokens);
}

// Of each text, whichever others are written at the same time.
TEST(LaterDrafts, OfATextDoNotDependOnOthers) {
  Loaded loaded(later_model("llama"), true);
  const auto accepted = [&](const std::vector<std::int64_t>& seeds) {
    const auto engine = make_batched_engine(loaded.inference, {}, DraftSource::later_layer(3));
    for (const std::int64_t seed : seeds)
      engine->submit({.prompt = later_ids(20 + seed, seed),
                      .sampling = {.max_new_tokens = 40, .temperature = 0.9},
                      .draw = static_cast<std::uint64_t>(seed)});
    run(*engine);
    return engine->counts().accepted_tokens;
  };
  EXPECT_EQ(accepted({1, 2, 3}), accepted({1}) + accepted({2}) + accepted({3}));
}

TEST(LaterDrafts, TakeMemoryOnlyWhereTheyAreAskedFor) {
  const ModelConfig model = later_model("llama");
  Loaded with(model, true);
  Loaded without(model);
  EXPECT_EQ(without.session.settings().model.mtp_layers, 0);
  for (const Parameter* parameter : without.session.parameters())
    EXPECT_FALSE(parameter->name.starts_with("mtp.")) << parameter->name;
  EXPECT_GT(with.session.parameters().size(), without.session.parameters().size());
  const auto bytes = [](Loaded& loaded, KvCache cache) {
    loaded.inference.make_room(cache, 2);
    return cache.bytes();
  };
  const std::int64_t plain = bytes(without, without.inference.make_cache());
  EXPECT_EQ(bytes(with, with.inference.make_cache()), plain);
  EXPECT_EQ(bytes(with, with.inference.make_later_cache()),
            plain / model.layers * (model.layers + 1));
}

}  // namespace
}  // namespace piton
