// Requests with different adapters in the same passes have the tokens of a model that has this
// adapter alone, read without a cache and without others. Prefixes of one adapter are not those of
// another one.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "model/lora/lora_options.h"
#include "unit/generate/drawn_adapters.h"
#include "unit/generate/small_engine.h"

namespace piton {
namespace {

using test::oracle;
using test::prompt_of;
using test::Texts;

Adapters adapters_of(const ModelConfig& model, std::vector<std::string> targets, std::int64_t rank,
                     bool dora = false) {
  LoraOptions options;
  options.target_modules = std::move(targets);
  options.rank = rank;
  options.use_dora = dora;
  return options.resolve(model);
}

// Separate matrices, one A for query, key and value, and with magnitudes.
std::vector<Adapters> choices(const ModelConfig& model = test::small_model()) {
  std::vector<std::string> shared{"qkv_proj", "down_proj"};
  std::vector<std::string> some{"q_proj", "up_proj", "o_proj"};
  if (model.delta) {
    shared.insert(shared.end(), {"in_proj_qkvz", "in_proj_ba"});
    some.insert(some.end(), {"in_proj_qkv", "in_proj_b", "out_proj"});
  }
  if (model.latent) {
    shared = {"kv_b_proj", "down_proj"};
    some = {"kv_a_proj_with_mqa", "up_proj", "o_proj"};
  }
  return {adapters_of(model, {"all-linear"}, 4), adapters_of(model, shared, 2),
          adapters_of(model, some, 3, true)};
}

struct Adapted : test::HostMachine {
  explicit Adapted(const Adapters& adapters, std::uint64_t label = 0,
                   const ModelConfig& model = test::small_model())
      : mesh(*world, MeshSizes{}),
        session(machine, mesh,
                {.model = model, .seed = 3, .use = SessionUse::kInference, .adapters = adapters}),
        inference(init(session, *stream, label).context(false), session.pipeline(), mesh, model) {}
  static Session& init(Session& session, Stream& stream, std::uint64_t label) {
    session.initialize();
    test::draw_adapters(session, stream, label);
    return session;
  }

  Mesh mesh;
  Session session;
  Inference inference;
};

std::vector<DecodingRequest> requests_of_adapters() {
  std::vector<DecodingRequest> requests;
  for (const std::int64_t length : {5, 130, 70}) {
    for (std::int64_t adapter = -1; adapter < 3; ++adapter) {
      DecodingRequest& one = requests.emplace_back(
          DecodingRequest{.prompt = prompt_of(length), .sampling = {.max_new_tokens = 16}});
      one.sampling.greedy = length != 70;
      one.draw = static_cast<std::uint64_t>(length);
      if (adapter >= 0) one.adapter = adapter;
    }
  }
  return requests;
}

// Of the models that have one adapter, or none.
std::vector<std::vector<std::int32_t>> texts_alone(const std::vector<DecodingRequest>& requests,
                                                   const ModelConfig& model) {
  std::vector<std::unique_ptr<Adapted>> alone;
  alone.push_back(std::make_unique<Adapted>(Adapters(), 0, model));
  for (std::size_t i = 0; i < 3; ++i)
    alone.push_back(std::make_unique<Adapted>(choices(model)[i], i, model));
  std::vector<std::vector<std::int32_t>> all;
  for (const DecodingRequest& request : requests) {
    const auto model = static_cast<std::size_t>(request.adapter.value_or(-1) + 1);
    all.push_back(oracle(alone[model]->inference, request));
  }
  return all;
}

void expect_texts_of_adapters_alone(const ModelConfig& model) {
  const std::vector<DecodingRequest> requests = requests_of_adapters();
  const auto wanted = texts_alone(requests, model);
  for (std::size_t i = 0; i < requests.size(); i += 4) {
    for (std::size_t a = 0; a < 4; ++a) {
      for (std::size_t b = 0; b < a; ++b) ASSERT_NE(wanted[i + a], wanted[i + b]) << i;
    }
  }
  Adapted all({.choices = choices(model)}, 0, model);
  for (const DecodingLimits& limits :
       {DecodingLimits{}, DecodingLimits{.texts = 1}, DecodingLimits{.texts = 5},
        DecodingLimits{.prompt_tokens = 7}, DecodingLimits{.cache_tokens = 400}}) {
    SCOPED_TRACE(fmt::format("{} texts, {} tokens of prompts, {} of the cache", limits.texts,
                             limits.prompt_tokens, limits.cache_tokens));
    const auto engine = make_batched_engine(all.inference, limits);
    for (int round = 0; round < 2; ++round) {  // the second time the prompts are known
      const auto first = static_cast<std::int64_t>(round * requests.size());
      for (const DecodingRequest& request : requests) engine->submit(request);
      Texts texts = test::run(*engine);
      for (std::size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(texts[first + static_cast<std::int64_t>(i)], wanted[i]) << round << ", " << i;
    }
  }
}

TEST(AdaptersByRequest, GiveEachTextTheTokensOfItsAdapterAlone) {
  expect_texts_of_adapters_alone(test::small_model());
}

TEST(AdaptersByRequest, GiveEachTextTheTokensOfItsAdapterAloneWhereLayersHaveStates) {
  expect_texts_of_adapters_alone(test::small_model_with_states());
}

TEST(AdaptersByRequest, GiveEachTextTheTokensOfItsAdapterAloneWhereAttentionIsLatent) {
  expect_texts_of_adapters_alone(test::small_model_with_latents());
}

TEST(AdaptersByRequest, ShareNoPagesWithOtherAdapters) {
  Adapted all({.choices = choices()});
  const auto engine = make_batched_engine(all.inference, {});
  const auto reused = [&](std::optional<std::int64_t> adapter) {
    const std::int64_t before = engine->counts().reused_tokens;
    engine->submit({.prompt = prompt_of(130),
                    .sampling = {.max_new_tokens = 2, .greedy = true},
                    .adapter = adapter});
    test::run(*engine);
    return engine->counts().reused_tokens - before;
  };
  for (int round = 0; round < 2; ++round) {
    for (const std::optional<std::int64_t> adapter :
         {std::optional<std::int64_t>(), std::optional<std::int64_t>(0),
          std::optional<std::int64_t>(2)})
      EXPECT_EQ(reused(adapter), round == 0 ? 0 : 129) << adapter.value_or(-1);
  }
}

TEST(AdaptersByRequest, GiveEmbeddingsOfOneAdapter) {
  Adapted all({.choices = choices()});
  const std::vector<std::int32_t> ids = prompt_of(9);
  const auto of = [&](std::optional<std::int64_t> adapter) {
    return all.inference.embedding(ids, EmbeddingPooling::kMean, adapter);
  };
  EXPECT_EQ(of(1), Adapted(choices()[1], 1).inference.embedding(ids, EmbeddingPooling::kMean));
  EXPECT_EQ(of({}), Adapted(Adapters()).inference.embedding(ids, EmbeddingPooling::kMean));
}

}  // namespace
}  // namespace piton
