// A cache of latents: texts that are read in parts of any size, alone and next to others, have the
// logits of a pass over the whole text, which makes the keys and values of each head. A row has the
// same bits next to any other texts. The cache has one row for each token and layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "codes/code_format.h"
#include "model/lora/lora_options.h"
#include "session/quantized_parameters.h"
#include "unit/generate/drawn_adapters.h"
#include "unit/generate/small_engine.h"

namespace piton {
namespace {

using test::Loaded;
using test::prompt_of;
using test::small_model_with_latents;

using Ids = std::vector<std::int32_t>;

std::vector<std::int32_t> all_rows(std::int64_t n) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// Logits after each of the tokens, read in parts of these sizes.
std::vector<float> in_parts(Inference& inference, const Ids& ids,
                            const std::vector<std::int64_t>& sizes) {
  KvCache cache = inference.make_cache();
  const std::int64_t text = cache.add_text();
  std::vector<float> all;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    const TextTokens part{.text = text,
                          .ids = std::span(ids).subspan(static_cast<std::size_t>(begin),
                                                        static_cast<std::size_t>(size))};
    const auto some =
        inference.whole_vocabulary(inference.logits(std::span(&part, 1), all_rows(size), cache));
    all.insert(all.end(), some.begin(), some.end());
    begin += size;
  }
  EXPECT_EQ(begin, std::ssize(ids));
  return all;
}

std::vector<float> of_whole_text(Inference& inference, const Ids& ids) {
  return inference.whole_vocabulary(
      inference.logits(ids, 1, all_rows(static_cast<std::int64_t>(ids.size()))));
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double squares = 0;
  double distances = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += static_cast<double>(a[i]) * a[i];
    distances += std::pow(static_cast<double>(a[i]) - b[i], 2);
  }
  return std::sqrt(distances / squares);
}

struct Variant {
  std::string name;
  ModelConfig model;
};

std::vector<Variant> variants() {
  std::vector<Variant> all{{"plain", small_model_with_latents()}};
  const auto add = [&](const char* name) -> ModelConfig& {
    return all.emplace_back(Variant{name, small_model_with_latents()}).model;
  };
  add("a latent of queries, no norms").latent->query_rank = 7;
  all.back().model.head_norms = false;
  add("a window").window_before = 20;
  add("a soft cap").attention_soft_cap = 3;
  add("one more logit").softmax = SoftmaxKind::kOffByOne;
  add("halves").rotary_pairs = false;
  add("yarn").rotary_scaling = {.kind = RotaryScaling::Kind::kYarn,
                                .factor = 4,
                                .original_positions = 64,
                                .numerator = 0.7,
                                .denominator = 0.7};
  add("values as wide as keys").latent->value = 10;
  return all;
}

TEST(LatentCache, HasTheLogitsOfWholeTexts) {
  for (const auto& [name, model] : variants()) {
    Loaded loaded(model);
    const Ids ids = prompt_of(200);
    const std::vector<float> whole = of_whole_text(loaded.inference, ids);
    for (const std::vector<std::int64_t>& sizes :
         {std::vector<std::int64_t>{200}, {64, 136}, {10, 20, 33, 100, 1, 32, 1, 1, 1, 1}}) {
      EXPECT_LT(distance(whole, in_parts(loaded.inference, ids, sizes)), 1e-5)
          << name << ", parts of " << sizes.front();
    }
  }
}

TEST(LatentCache, HasThemOfTextsInManyPages) {
  ModelConfig model = small_model_with_latents();
  model.max_positions = 1300;
  Loaded loaded(model);
  const Ids ids = prompt_of(1200);  // the last keys of few rows are in two stretches
  const std::vector<float> whole = of_whole_text(loaded.inference, ids);
  EXPECT_LT(distance(whole, in_parts(loaded.inference, ids, {700, 300, 30, 100, 69, 1})), 1e-5);
}

// An adapter of the matrix of keys and values is not in what attention to latents moves: then the
// cache has keys and values.
TEST(LatentCache, HasThemOfAdapters) {
  const ModelConfig model = small_model_with_latents();
  const Ids ids = prompt_of(150);
  for (const char* target : {"kv_b_proj", "kv_a_proj_with_mqa", "all-linear"}) {
    LoraOptions options;
    options.target_modules = {target};
    options.rank = 3;
    test::HostMachine machine;
    Mesh mesh(*machine.world, MeshSizes{});
    Session session(machine.machine, mesh,
                    {.model = model,
                     .seed = 3,
                     .use = SessionUse::kInference,
                     .adapters = options.resolve(model)});
    session.initialize();
    const auto logits = [&] {
      Inference inference(session.context(false), session.pipeline(), mesh, model);
      const std::vector<float> whole = of_whole_text(inference, ids);
      EXPECT_LT(distance(whole, in_parts(inference, ids, {90, 20, 39, 1})), 1e-5) << target;
      return whole;
    };
    const std::vector<float> before = logits();
    test::draw_adapters(session, *machine.stream, 0);
    EXPECT_GT(distance(before, logits()), 1e-3) << target;
  }
}

// Of weights that are codes: rows of them are taken for each head.
TEST(LatentCache, HasThemOfQuantizedWeights) {
  ModelConfig model = small_model_with_latents();
  model.hidden = 64;
  model.latent->rank = 64;
  for (const char* format : {"int8", "int4"}) {
    test::HostMachine machine;
    Mesh mesh(*machine.world, MeshSizes{});
    Session session(machine.machine, mesh,
                    {.model = model,
                     .seed = 3,
                     .use = SessionUse::kInference,
                     .codes = codes_in(*code_format("--quantize", format), "--quantize")});
    session.initialize();
    const auto weight = std::ranges::find(session.parameters(),
                                          "layers.0.attention.key_value.weight", &Parameter::name);
    ASSERT_NE(weight, session.parameters().end());
    EXPECT_TRUE((*weight)->codes.given());
    Inference inference(session.context(false), session.pipeline(), mesh, model);
    const Ids ids = prompt_of(150);
    // Rows of products with codes are rounded to 16-bit integers, and not where both forms do.
    EXPECT_LT(distance(of_whole_text(inference, ids), in_parts(inference, ids, {90, 20, 39, 1})),
              2e-3)
        << format;
  }
}

TEST(LatentCache, GivesARowTheSameBitsNextToOtherTexts) {
  Loaded loaded(small_model_with_latents());
  Inference& inference = loaded.inference;
  const Ids first = prompt_of(110), second = prompt_of(75, 4), third = prompt_of(30, 5);
  // Of the rest of each text, after `read` tokens of it.
  const auto read_rest = [&](const std::vector<std::pair<const Ids*, std::size_t>>& texts) {
    KvCache cache = inference.make_cache();
    std::vector<TextTokens> parts;
    for (const auto& [ids, read] : texts) {
      const TextTokens before{.text = cache.add_text(), .ids = std::span(*ids).first(read)};
      if (read > 0) inference.logits(std::span(&before, 1), {}, cache);
      parts.push_back({.text = before.text, .ids = std::span(*ids).subspan(read)});
    }
    std::int64_t rows = 0;
    for (const TextTokens& part : parts) rows += std::ssize(part.ids);
    return inference.whole_vocabulary(inference.logits(parts, all_rows(rows), cache));
  };
  std::vector<float> alone;
  for (const auto& one : {std::pair{&third, std::size_t{29}},
                          {&first, std::size_t{60}},
                          {&second, std::size_t{74}},
                          {&third, std::size_t{0}}}) {
    const std::vector<float> some = read_rest({one});
    alone.insert(alone.end(), some.begin(), some.end());
  }
  EXPECT_EQ(read_rest({{&third, 29}, {&first, 60}, {&second, 74}, {&third, 0}}), alone);
}

TEST(LatentCache, HasOneRowForATokenAndLayer) {
  Loaded loaded(small_model_with_latents());
  const Ids ids = prompt_of(200);
  const auto bytes_of_page = [&](CacheNumbers numbers, std::vector<float>& logits) {
    loaded.inference.set_cache_numbers(numbers);
    KvCache cache = loaded.inference.make_cache();
    loaded.inference.make_room(cache, 4);
    logits = in_parts(loaded.inference, ids, {50, 100, 50});
    return cache.bytes() / cache.pages().size();
  };
  std::vector<float> full, coded;
  // Of 2 layers: 12 and 4 channels of 4 bytes each, or of 1 and two scales of 4 bytes.
  EXPECT_EQ(bytes_of_page(CacheNumbers::kOfModel, full), 2 * kCachePage * (12 + 4) * 4);
  EXPECT_EQ(bytes_of_page(CacheNumbers::kInt8, coded), 2 * kCachePage * ((12 + 4) + 2 * 4));
  EXPECT_LT(distance(full, coded), 0.02);
  EXPECT_NE(full, coded) << "nothing was rounded";
}

TEST(LatentCache, GivesEachRequestTheTokensThatItHasAlone) {
  Loaded loaded(small_model_with_latents());
  for (const CacheNumbers numbers : {CacheNumbers::kOfModel, CacheNumbers::kInt8}) {
    loaded.inference.set_cache_numbers(numbers);
    std::vector<DecodingRequest> requests;
    std::vector<Ids> alone;
    for (const std::int64_t length : {5, 150, 130, 64, 1}) {
      requests.push_back({.prompt = prompt_of(length), .sampling = {.max_new_tokens = 20}});
      requests.back().sampling.greedy = length != 64;
      const auto engine = make_batched_engine(loaded.inference, {});
      engine->submit(requests.back());
      alone.push_back(test::run(*engine)[0]);
      if (numbers == CacheNumbers::kOfModel) {
        EXPECT_EQ(alone.back(), test::oracle(loaded.inference, requests.back()));
      }
    }
    for (const DecodingLimits& limits : {DecodingLimits{}, DecodingLimits{.prompt_tokens = 7},
                                         DecodingLimits{.cache_tokens = 400}}) {
      const auto engine = make_batched_engine(loaded.inference, limits);
      for (int round = 0; round < 2; ++round) {  // the second time from shared pages
        for (const DecodingRequest& request : requests) engine->submit(request);
        test::Texts texts = test::run(*engine);
        for (std::size_t i = 0; i < alone.size(); ++i)
          EXPECT_EQ(texts[static_cast<std::int64_t>(round * alone.size() + i)], alone[i]) << i;
      }
      EXPECT_GT(engine->counts().reused_tokens, 0);
    }
  }
}

}  // namespace
}  // namespace piton
