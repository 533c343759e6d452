// Texts that T5 models write equal those of Transformers (tests/golden/encoders, made by
// tools/oracle/encoders.py in float64); what only decoders do is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "api/model.h"
#include "checkpoint/safetensors.h"
#include "support/errors.h"
#include "support/golden_huggingface.h"
#include "support/host_machine.h"

namespace piton {
namespace {

using Ids = std::vector<std::int32_t>;

// Row `row` of an int32 tensor [2, n], without the entries that are `filler`.
Ids golden_row(const SafetensorsFile& file, const std::string& name, std::int64_t row,
               std::int32_t filler) {
  const Tensor tensor = file.tensor(name);
  const auto* begin = tensor.data<std::int32_t>() + row * tensor.dim(1);
  Ids ids(begin, begin + tensor.dim(1));
  std::erase(ids, filler);
  return ids;
}

template <typename Tokens>
Ids written_ids(const Tokens& tokens) {
  Ids ids{0};  // the start token
  for (const auto& token : tokens) ids.push_back(token.id);
  return ids;
}

class EncoderDecoder : public testing::TestWithParam<const char*> {
 protected:
  test::HostMachine machine_;
  SafetensorsFile expected_{test::encoder_folder(GetParam()) / "expected.safetensors"};
  std::unique_ptr<Model> model_ =
      Model::load(machine_.machine, test::encoder_folder(GetParam()), {});
  SamplingOptions greedy_{.max_new_tokens = 24, .greedy = true};
};

TEST_P(EncoderDecoder, WritesTheTextsOfTransformers) {
  for (const std::int64_t row : {0, 1}) {
    const Ids source = golden_row(expected_, "tokens", row, 0);
    const auto every = [](const GeneratedToken&) { return true; };
    EXPECT_EQ(written_ids(model_->generate(source, greedy_, every)),
              golden_row(expected_, "greedy", row, -1))
        << row;
    const std::vector<Beam> beams = model_->beams(
        source, 24, {.num_beams = 4}, [](std::span<const LikelyToken>) { return false; });
    ASSERT_EQ(beams.size(), 4U);
    EXPECT_EQ(written_ids(beams.front().tokens), golden_row(expected_, "beams", row, -1)) << row;
  }
}

TEST_P(EncoderDecoder, StopsWhereItIsTold) {
  const Ids source = golden_row(expected_, "tokens", 1, 0);
  const auto tokens =
      model_->generate(source, greedy_, [n = 0](const GeneratedToken&) mutable { return ++n < 2; });
  EXPECT_EQ(tokens.size(), 2U);
}

TEST_P(EncoderDecoder, DrawsTextsThatDifferInTheirDraws) {
  const std::vector<Ids> sources(3, golden_row(expected_, "tokens", 0, 0));
  const std::vector<std::uint64_t> draws{0, 1, 0};
  const auto every = [](std::size_t, const GeneratedToken&) { return true; };
  const auto texts = model_->generate_batch({.ids = sources, .draws = draws},
                                            {.max_new_tokens = 12, .temperature = 3}, every);
  EXPECT_EQ(written_ids(texts[0]), written_ids(texts[2]));
  EXPECT_NE(written_ids(texts[0]), written_ids(texts[1]));
}

TEST_P(EncoderDecoder, RefusesWhatIsForDecoders) {
  const auto refused = [&](const std::function<void()>& call) {
    EXPECT_THAT(message_of(Fault::kData, call),
                testing::HasSubstr("has an encoder and a decoder (t5)"));
  };
  const Ids ids{5, 6, 7};
  refused([&] { model_->score(ids); });
  refused([&] { model_->logits(ids); });
  refused([&] { model_->embedding(ids, EmbeddingPooling::kMean); });
  refused([&] { model_->gradients({ids}); });
  refused([&] { model_->make_engine({.texts = 1}); });
  const auto every = [](const GeneratedToken&) { return true; };
  EXPECT_THAT(message_of(Fault::kUsage, [&] { model_->generate(Ids(40, 5), greedy_, every); }),
              testing::HasSubstr("the prompt has 40 tokens and the model takes 40"));
}

INSTANTIATE_TEST_SUITE_P(T5, EncoderDecoder, testing::Values("t5", "t5-v1.1"));

}  // namespace
}  // namespace piton
