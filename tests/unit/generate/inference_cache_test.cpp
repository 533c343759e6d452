// A cache of 8-bit integers: a request has the same tokens alone and next to others, from pages
// that it shares and after it was forked; it takes a quarter of the memory of fp32, and its logits
// are near those of the full cache. The likeliest tokens are chosen where the logits are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/errors.h"
#include "unit/generate/small_engine.h"

namespace piton {
namespace {

using test::Loaded;
using test::prompt_of;
using test::Texts;

std::vector<DecodingRequest> requests() {
  std::vector<DecodingRequest> all;
  for (const std::int64_t length : {5, 150, 130, 64, 1}) {
    DecodingRequest& one = all.emplace_back(
        DecodingRequest{.prompt = prompt_of(length), .sampling = {.max_new_tokens = 20}});
    one.sampling.greedy = length != 64;
  }
  return all;
}

TEST(CacheOfCodes, GivesEachRequestTheTokensThatItHasAlone) {
  Loaded loaded;
  loaded.inference.set_cache_numbers(CacheNumbers::kInt8);
  std::vector<std::vector<std::int32_t>> alone;
  for (const DecodingRequest& request : requests()) {
    const auto engine = make_batched_engine(loaded.inference, {});
    engine->submit(request);
    alone.push_back(test::run(*engine)[0]);
    EXPECT_EQ(alone.back().size(), 20U);
  }
  for (const DecodingLimits& limits : {DecodingLimits{}, DecodingLimits{.prompt_tokens = 7},
                                       DecodingLimits{.cache_tokens = 400}}) {
    const auto engine = make_batched_engine(loaded.inference, limits);
    for (int round = 0; round < 2; ++round) {  // the second time from shared pages
      for (const DecodingRequest& request : requests()) engine->submit(request);
      Texts texts = test::run(*engine);
      for (std::size_t i = 0; i < alone.size(); ++i)
        EXPECT_EQ(texts[static_cast<std::int64_t>(round * alone.size() + i)], alone[i]) << i;
    }
    EXPECT_GT(engine->counts().reused_tokens, 0);
  }
}

// Logits after each of the tokens, read in parts.
std::vector<float> logits_with(Inference& inference, CacheNumbers numbers, std::int64_t& bytes) {
  inference.set_cache_numbers(numbers);
  KvCache cache = inference.make_cache();
  const std::int64_t text = cache.add_text();
  const std::vector<std::int32_t> ids = prompt_of(200);
  std::vector<float> all;
  for (std::size_t begin = 0; begin < ids.size(); begin += 50) {
    const TextTokens part{.text = text, .ids = std::span(ids).subspan(begin, 50)};
    std::vector<std::int32_t> rows(50);
    for (std::int32_t i = 0; i < 50; ++i) rows[static_cast<std::size_t>(i)] = i;
    const auto some =
        inference.whole_vocabulary(inference.logits(std::span(&part, 1), rows, cache));
    all.insert(all.end(), some.begin(), some.end());
  }
  bytes = cache.bytes() / cache.pages().size();
  return all;
}

TEST(CacheOfCodes, IsSmallAndNearTheFullOne) {
  Loaded loaded;
  std::int64_t full_bytes = 0;
  std::int64_t bytes = 0;
  const auto full = logits_with(loaded.inference, CacheNumbers::kOfModel, full_bytes);
  const auto coded = logits_with(loaded.inference, CacheNumbers::kInt8, bytes);
  // Of 2 layers, keys and values, 2 heads of 8 channels: 4 bytes each, or 1 and a scale of 4 bytes.
  EXPECT_EQ(full_bytes, 2 * 2 * kCachePage * 2 * 8 * 4);
  EXPECT_EQ(bytes, 2 * 2 * kCachePage * 2 * (8 + 4));
  ASSERT_EQ(full.size(), coded.size());
  double squares = 0;
  double distances = 0;
  for (std::size_t i = 0; i < full.size(); ++i) {
    squares += static_cast<double>(full[i]) * full[i];
    distances += std::pow(static_cast<double>(full[i]) - coded[i], 2);
  }
  EXPECT_LT(std::sqrt(distances / squares), 0.02);
  EXPECT_GT(distances, 0) << "nothing was rounded";
}

// Of a text that is forked, while another takes the number of the one that it was forked from.
class StatesOfTexts : public testing::TestWithParam<std::string> {};

TEST_P(StatesOfTexts, AreThoseOfAllTheirTokens) {
  Loaded loaded(test::kModelsWithStates.at(GetParam())());
  Inference& inference = loaded.inference;
  KvCache cache = inference.make_cache();
  std::map<std::int64_t, std::vector<std::int32_t>> texts;
  const auto read = [&](const std::map<std::int64_t, std::vector<std::int32_t>>& more) {
    std::vector<TextTokens> parts;
    std::vector<std::int32_t> last;
    for (const auto& [text, ids] : more) {
      parts.push_back({.text = text, .ids = ids});
      last.push_back(static_cast<std::int32_t>(ids.size()) - 1 +
                     (last.empty() ? 0 : last.back() + 1));
      texts[text].insert(texts[text].end(), ids.begin(), ids.end());
    }
    const Tensor split = inference.logits(parts, last, cache);
    const std::vector<float> logits = inference.whole_vocabulary(split);
    std::size_t row = 0;
    for (const auto& [text, ids] : more) {
      const std::vector<std::int32_t> end{static_cast<std::int32_t>(texts[text].size()) - 1};
      const std::vector<float> whole =
          inference.whole_vocabulary(inference.logits(texts[text], 1, end));
      for (std::size_t i = 0; i < whole.size(); ++i)
        ASSERT_NEAR(logits[row * whole.size() + i], whole[i], 2e-4) << "text " << text;
      ++row;
    }
  };
  const std::int64_t first = cache.add_text();
  read({{first, prompt_of(9)}});
  const std::int64_t second = cache.fork(first);
  texts[second] = texts[first];
  cache.pages().remove_text(first);
  const std::int64_t third = cache.fork(second);
  ASSERT_EQ(third, first);
  texts[third] = texts[second];
  read({{third, {1}}, {second, {2, 3, 4, 5}}});
  const std::int64_t fourth = cache.fork(third);
  texts[fourth] = texts[third];
  cache.pages().remove_text(third);
  const std::int64_t fifth = cache.add_text();
  ASSERT_EQ(fifth, third);
  texts[fifth].clear();
  read({{fifth, prompt_of(2, 4)}, {second, {7}}, {fourth, {8, 9}}});
  read({{fifth, {3}}, {fourth, {1}}});
}

INSTANTIATE_TEST_SUITE_P(Rules, StatesOfTexts,
                         testing::Values("delta", "state_space", "convolutions"),
                         [](const auto& info) { return info.param; });

TEST(LikeliestTokens, AreThoseOfTheLogits) {
  Loaded loaded;
  const std::vector<std::int32_t> ids = prompt_of(40);
  const Tensor split = loaded.inference.logits(ids, 1);
  const std::vector<LikelyToken> tokens = loaded.inference.likeliest(split);
  const std::vector<float> logits = loaded.inference.whole_vocabulary(split);
  ASSERT_EQ(tokens.size(), ids.size());
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const std::span<const float> one = std::span(logits).subspan(row * 61, 61);
    const LikelyToken wanted = likeliest_tokens(one, 1).front();
    EXPECT_EQ(tokens[row].id, wanted.id) << row;
    EXPECT_NEAR(tokens[row].log_probability, wanted.log_probability, 1e-6) << row;
  }
  split.data<float>()[split.dim(1) + 9] = std::nanf("");
  EXPECT_THAT(message_of(Fault::kData, [&] { loaded.inference.likeliest(split); }),
              testing::HasSubstr("logits are not finite"));
}

// Their probabilities are those of the logits, which the penalties and the constraint leave alone.
TEST(DrawnTokens, HaveTheModelsProbabilities) {
  Loaded loaded;
  const std::vector<std::int32_t> ids = prompt_of(40);
  const Tensor split = loaded.inference.logits(ids, 1);
  const std::vector<float> logits = loaded.inference.whole_vocabulary(split);
  const SamplingOptions sampling{.temperature = 2, .repetition_penalty = 5};
  std::vector<TokenDraw> draws(ids.size());
  for (std::size_t row = 0; row < ids.size(); ++row)
    draws[row] = {.sampling = &sampling,
                  .place = {.index = static_cast<std::int64_t>(row)},
                  .text = {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(row) + 1},
                  .prompt = row};
  const std::vector<DrawnToken> tokens = loaded.inference.draw(split, draws);
  ASSERT_EQ(tokens.size(), ids.size());
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const std::span<const float> one = std::span(logits).subspan(row * 61, 61);
    EXPECT_NEAR(tokens[row].log_probability,
                token_of(one, sampling, tokens[row].id).log_probability, 1e-6)
        << row;
  }
  EXPECT_EQ(loaded.inference.whole_vocabulary(split), logits);
  split.data<float>()[split.dim(1) + 9] = std::nanf("");
  EXPECT_THAT(message_of(Fault::kData, [&] { loaded.inference.draw(split, draws); }),
              testing::HasSubstr("logits are not finite"));
}

// Counts the bytes that are copied to the host.
class CountingDevice final : public Device {
 public:
  explicit CountingDevice(Device& inner) : inner_(inner) {}
  std::byte* allocate(std::int64_t bytes) override { return inner_.allocate(bytes); }
  void release(std::byte* data, std::int64_t bytes) override { inner_.release(data, bytes); }
  Place place() const override { return inner_.place(); }
  std::string name() const override { return inner_.name(); }
  std::unique_ptr<Stream> make_stream() override { return inner_.make_stream(); }
  void upload(const void* host, const Tensor& dst, Stream& stream) override {
    inner_.upload(host, dst, stream);
  }
  void download(const Tensor& src, void* host, Stream& stream) override {
    downloaded += src.bytes();
    inner_.download(src, host, stream);
  }
  void zero(const Tensor& dst, Stream& stream) override { inner_.zero(dst, stream); }
  void copy(const Tensor& dst, const Tensor& src, Stream& stream) override {
    inner_.copy(dst, src, stream);
  }
  Memory& host_memory() override { return inner_.host_memory(); }
  std::byte* host_address(const Tensor& tensor) const override {
    return inner_.host_address(tensor);
  }
  std::int64_t downloaded = 0;

 private:
  Device& inner_;
};

TEST(ChosenTokens, LeaveTheLogitsWhereTheyAre) {
  Loaded loaded;
  CountingDevice device(loaded.device);
  const Context own = loaded.session.context(false);
  Inference inference({.kernels = own.kernels,
                       .stream = own.stream,
                       .device = device,
                       .arena = own.arena,
                       .weights = own.weights},
                      loaded.session.pipeline(), loaded.mesh, test::small_model());
  const auto bytes_of = [&](const SamplingOptions& sampling, int texts) {
    device.downloaded = 0;
    const auto engine = make_batched_engine(inference, {});
    for (int i = 0; i < texts; ++i)
      engine->submit({.prompt = prompt_of(5 + i), .sampling = sampling});
    test::run(*engine);
    return device.downloaded;
  };
  // An id and three sums of each token.
  constexpr std::int64_t kOfTexts = 3 * 10 * (4 + 3 * 4);
  EXPECT_EQ(bytes_of({.max_new_tokens = 10, .greedy = true}, 3), kOfTexts);
  EXPECT_EQ(bytes_of({.max_new_tokens = 10}, 3), kOfTexts);
  EXPECT_EQ(
      bytes_of({.max_new_tokens = 10, .top_k = 9, .top_p = 0.9, .repetition_penalty = 1.1}, 3),
      kOfTexts);
  EXPECT_EQ(bytes_of({.max_new_tokens = 10, .greedy = true, .frequency_penalty = 1}, 3), kOfTexts);
  const std::int64_t logits = 10 * 4 * test::small_model().vocabulary;
  EXPECT_GE(bytes_of({.max_new_tokens = 10, .greedy = true, .log_probabilities = 2}, 1), logits);
}

}  // namespace
}  // namespace piton
