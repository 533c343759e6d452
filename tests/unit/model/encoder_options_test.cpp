#include "model/encoder_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/canonical_tensors.h"
#include "model/families.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

ModelOptions tiny(const EncoderOptions& encoder = {}) {
  ModelOptions options;
  options.model = "bert-tiny";
  options.encoder = encoder;
  return options;
}

TEST(EncoderOptions, SayAllThatEncodersHave) {
  for (const EncoderOptions& given :
       {EncoderOptions{}, EncoderOptions{.post_norm = true},
        EncoderOptions{
            .post_norm = true, .token_types = 1, .first_position = 2, .no_pair_head = true},
        EncoderOptions{.no_pair_head = true}, EncoderOptions{.token_types = 5}}) {
    const ModelConfig config = tiny(given).resolve({});
    EXPECT_EQ(ModelOptions::of(config).resolve({}), config);
  }
}

TEST(EncoderOptions, OfOnePartHaveNoTypesUnlessAsked) {
  EXPECT_EQ(tiny({.no_pair_head = true}).resolve({}).encoder->token_types, 0);
  EXPECT_EQ(tiny({.token_types = 2, .no_pair_head = true}).resolve({}).encoder->token_types, 2);
  EXPECT_EQ(tiny().resolve({}).encoder->token_types, 2);
}

TEST(EncoderOptions, CountTheElementsOfTheCanonicalTensors) {
  for (const bool post_norm : {false, true}) {
    for (const bool alone : {false, true}) {
      const ModelConfig config = tiny({.post_norm = post_norm, .no_pair_head = alone}).resolve({});
      std::int64_t elements = 0;
      for (const CanonicalShape& one : canonical_tensors(config)) elements += one.shape.elements();
      EXPECT_EQ(config.parameters(), elements);
    }
  }
}

TEST(EncoderOptions, TakeTheLongestTextFromThePositions) {
  EXPECT_EQ(tiny().resolve({}).longest_sequence(), 128);
  EXPECT_EQ(tiny({.first_position = 2}).resolve({}).longest_sequence(), 126);
}

TEST(EncoderOptions, RefuseWhatEncodersDoNotHave) {
  const auto refusal = [](const std::function<void(ModelOptions&)>& change) {
    ModelOptions options = tiny();
    change(options);
    return message_of(Fault::kUsage, [&] { options.resolve({}); });
  };
  EXPECT_EQ(refusal([](ModelOptions& o) { o.normalization = "RMSNorm"; }),
            "--normalization: an encoder (bert) has LayerNorm; leave the flag out");
  EXPECT_THAT(
      refusal([](ModelOptions& o) { o.attention.window_before = 4; }),
      HasSubstr("--pre-tockens, --next-tockens: an encoder (bert) has no attention window"));
  EXPECT_THAT(refusal([](ModelOptions& o) { o.untied = true; }),
              HasSubstr("--untie-embeddings-and-output-weights: an encoder"));
  EXPECT_THAT(refusal([](ModelOptions& o) { o.end_norms = true; }),
              HasSubstr("--post-norm: an encoder"));
  EXPECT_THAT(refusal([](ModelOptions& o) { o.encoder.token_types = -1; }),
              HasSubstr("--token-types: got -1, wanted 0 to 1024"));
  EXPECT_THAT(refusal([](ModelOptions& o) { o.encoder.first_position = 128; }),
              HasSubstr("--first-position: got 128, wanted 0 to 127"));
  ModelOptions decoder;
  decoder.model = "gpt2-tiny";
  decoder.encoder.post_norm = true;
  EXPECT_EQ(message_of(Fault::kUsage, [&] { decoder.resolve({}); }),
            "--apply-residual-connection-post-layernorm: is for --model-family bert; leave it out");
}

}  // namespace
}  // namespace piton
