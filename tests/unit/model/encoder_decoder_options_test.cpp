#include "model/encoder_decoder_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "model/canonical_tensors.h"
#include "model/families.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

ModelOptions t5_tiny(const EncoderDecoderOptions& both = {}) {
  ModelOptions options;
  options.model = "t5-tiny";
  options.encoder_decoder = both;
  return options;
}

// The published form, by its flags.
ModelOptions t5_published(bool untied = false) {
  ModelOptions options = t5_tiny({.buckets = 8, .farthest_bucket = 20});
  options.attention.positions = "relative";
  options.normalization = "RMSNorm";
  options.disable_bias_linear = true;
  options.mlp.activation = untied ? "geglu" : "relu";
  options.untied = untied;
  return options;
}

std::vector<ModelOptions> t5_forms() {
  return {t5_tiny(), t5_tiny({.encoder_layers = 3, .decoder_layers = 1}), t5_published(),
          t5_published(true)};
}

TEST(EncoderDecoderOptions, SayAllThatTheseModelsHave) {
  for (const ModelOptions& given : t5_forms()) {
    const ModelConfig config = given.resolve({});
    EXPECT_EQ(ModelOptions::of(config).resolve({}), config);
  }
}

TEST(EncoderDecoderOptions, CountTheElementsOfTheCanonicalTensors) {
  for (const ModelOptions& given : t5_forms()) {
    const ModelConfig config = given.resolve({});
    std::int64_t elements = 0;
    for (const CanonicalShape& one : canonical_tensors(config)) elements += one.shape.elements();
    EXPECT_EQ(config.parameters(), elements);
  }
}

TEST(EncoderDecoderOptions, GiveBothStacksTheLayersThatAreGiven) {
  ModelOptions options = t5_tiny();
  options.layers = 5;
  EXPECT_EQ(options.resolve({}).layers, 5);
  EXPECT_EQ(options.resolve({}).encoder_decoder->encoder_layers, 5);
  options.encoder_decoder = {.encoder_layers = 2, .decoder_layers = 3};
  EXPECT_EQ(options.resolve({}).layers, 3);
  EXPECT_EQ(options.resolve({}).encoder_decoder->encoder_layers, 2);
}

TEST(EncoderDecoderOptions, FollowTheFormOfTheModel) {
  const ModelConfig megatron = t5_tiny().resolve({});
  EXPECT_TRUE(megatron.encoder_decoder->head_bias);
  EXPECT_FALSE(megatron.encoder_decoder->scaled_head);
  const ModelConfig tied = t5_published().resolve({});
  EXPECT_TRUE(tied.encoder_decoder->scaled_head);
  EXPECT_FALSE(tied.encoder_decoder->head_bias);
  EXPECT_EQ(tied.query_scalar, 1);
  EXPECT_FALSE(t5_published(true).resolve({}).encoder_decoder->scaled_head);
}

TEST(EncoderDecoderOptions, RefuseWhatTheseModelsDoNotHave) {
  const auto refusal = [](ModelOptions options, const std::function<void(ModelOptions&)>& change) {
    change(options);
    return message_of(Fault::kUsage, [&] { options.resolve({}); });
  };
  EXPECT_EQ(refusal(t5_tiny(), [](ModelOptions& o) { o.attention.window_before = 4; }),
            "--pre-tockens, --next-tockens: a model of an encoder and a decoder (t5) has no "
            "attention window; leave the flag out");
  EXPECT_THAT(refusal(t5_tiny(), [](ModelOptions& o) { o.attention.positions = "rope"; }),
              HasSubstr("has learned_absolute or relative positions"));
  EXPECT_THAT(refusal(t5_published(), [](ModelOptions& o) { o.encoder_decoder.buckets = 7; }),
              HasSubstr("--relative-attention-num-buckets: got 7, wanted an even number"));
  EXPECT_THAT(
      refusal(t5_published(), [](ModelOptions& o) { o.encoder_decoder.farthest_bucket = 4; }),
      HasSubstr("--relative-attention-max-distance: got 4, wanted 5"));
  EXPECT_THAT(refusal(t5_tiny(), [](ModelOptions& o) { o.encoder_decoder.encoder_layers = 0; }),
              HasSubstr("--encoder-num-layers: got 0"));
  ModelOptions decoder;
  decoder.model = "gpt2-tiny";
  EXPECT_EQ(refusal(decoder, [](ModelOptions& o) { o.encoder_decoder.decoder_layers = 3; }),
            "--decoder-num-layers: is for --model-family t5; leave it out");
  EXPECT_EQ(refusal(decoder, [](ModelOptions& o) { o.attention.positions = "relative"; }),
            "--position-embedding-type: relative is for --model-family t5; give another kind");
}

}  // namespace
}  // namespace piton
