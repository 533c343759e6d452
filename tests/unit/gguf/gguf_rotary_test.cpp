// Rotary positions of GGUF files.
#include "gguf/gguf_rotary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gguf/architectures.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

// Positions of a model of heads of 64 channels.
class GgufRotary : public testing::Test {
 protected:
  GgufRotary() {
    model_.head_size = 64;
    model_.max_positions = 131072;
    model_.rotary_base = 500000;
  }
  // The description of a model with this scaling.
  GgufDescription described(double factor, double low, double high) const {
    ModelConfig model = model_;
    model.rotary_scaling = {.kind = RotaryScaling::Kind::kLlama3,
                            .factor = factor,
                            .original_positions = 8192,
                            .low = low,
                            .high = high};
    GgufDescription description{.architecture = "llama"};
    write_gguf_rotary(model, description);
    return description;
  }
  RotaryScaling read(const GgufDescription& description) const {
    ModelConfig model = model_;
    read_gguf_rotary(GgufKeys(description, "x.gguf"), model);
    return model.rotary_scaling;
  }

  ModelConfig model_;
};

TEST_F(GgufRotary, OfDivisorsAloneHasTheFormulaOfPublishedModels) {
  for (const double factor : {2.0, 4.0, 8.0, 16.0, 32.0}) {
    GgufDescription description = described(factor, 1, 4);
    std::erase_if(description.entries,
                  [](const GgufEntry& entry) { return entry.key.starts_with("piton."); });
    const RotaryScaling scaling = read(description);
    EXPECT_EQ(scaling.kind, RotaryScaling::Kind::kLlama3) << factor;
    EXPECT_EQ(scaling.factor, factor);
    EXPECT_EQ(scaling.original_positions, 8192);
  }
}

// As llama.cpp writes Ministral 3: one key for both factors of yarn, which are 1.
TEST_F(GgufRotary, OfQueriesThatGrowHasTheirRate) {
  ModelConfig model = model_;
  model.rotary_scaling = {.kind = RotaryScaling::Kind::kYarn,
                          .factor = 16,
                          .original_positions = 16384,
                          .query_growth = 0.25};
  GgufDescription description{.architecture = "mistral3"};
  write_gguf_rotary(model, description);
  write_gguf_growth(model, description);
  const auto grown = [&](GgufDescription said) {
    ModelConfig again = model_;
    const GgufKeys keys(said, "x.gguf");
    read_gguf_rotary(keys, again);
    read_gguf_growth(keys, again);
    return again.rotary_scaling;
  };
  EXPECT_EQ(grown(description), model.rotary_scaling);
  description.add("rope.scaling.yarn_log_multiplier", GgufValue::f32(1));
  EXPECT_EQ(grown(description).magnitude, 1);
  description.add("rope.scaling.attn_factor", GgufValue::f32(2));
  EXPECT_THAT(message_of(Fault::kData, [&] { grown(description); }),
              HasSubstr("yarn_log_multiplier: got 1, wanted 0, as there is"));
  GgufDescription plain{.architecture = "mistral3"};
  write_gguf_rotary(model_, plain);
  write_gguf_growth(model, plain);
  EXPECT_THAT(message_of(Fault::kData, [&] { grown(plain); }),
              HasSubstr("attention.temperature_scale: got 0.25, wanted 0, but of yarn"));
}

TEST_F(GgufRotary, OfNumbersThatAreNoFormulaHasTheDivisors) {
  EXPECT_EQ(read(described(8, 1.5, 2)).kind, RotaryScaling::Kind::kLlama3);
  const RotaryScaling scaling = read(described(8, 2, 2));
  EXPECT_EQ(scaling.kind, RotaryScaling::Kind::kLongrope);
  ASSERT_EQ(scaling.short_factors.size(), 32U);
  EXPECT_EQ(scaling.short_factors.back(), 8);
}

// llama.cpp: what the formula of yarn, 0.1 ln(factor) + 1, is multiplied with.
TEST_F(GgufRotary, OfYarnHasItsTurnsAndItsMagnitude) {
  model_.rotary_scaling = {.kind = RotaryScaling::Kind::kYarn,
                           .factor = 4,
                           .original_positions = 4096,
                           .fast = 16,
                           .slow = 2,
                           .magnitude = 1.5};
  GgufDescription description{.architecture = "llama"};
  const RotaryScaling kept = yarn_in_gguf(model_.rotary_scaling, false);
  ModelConfig model = model_;
  model.rotary_scaling = kept;
  write_gguf_rotary(model, description);
  const auto value = [&](const char* key) {
    for (const auto& [name, value] : description.entries) {
      if (name == key) return value.number();
    }
    return 0.0;
  };
  EXPECT_EQ(value("llama.rope.scaling.yarn_beta_fast"), 16);
  EXPECT_EQ(value("llama.rope.scaling.yarn_beta_slow"), 2);
  EXPECT_NEAR(value("llama.rope.scaling.attn_factor"), 1.5 / (0.1 * std::log(4) + 1), 1e-7);
  EXPECT_EQ(read(description), kept);
  EXPECT_NEAR(*kept.magnitude, 1.5, 1e-6);
}

TEST_F(GgufRotary, OfYarnWithBothFactorsOfTheMagnitudeHasWhatTheyMake) {
  const RotaryScaling scaling = {.kind = RotaryScaling::Kind::kYarn,
                                 .factor = 40,
                                 .original_positions = 4096,
                                 .numerator = 1,
                                 .denominator = 0.5};
  const RotaryScaling kept = yarn_in_gguf(scaling, false);
  EXPECT_NEAR(rotary_magnitude(kept), rotary_magnitude(scaling), 1e-6);
  EXPECT_EQ(kept.numerator, 0);
  EXPECT_EQ(yarn_in_gguf({.kind = RotaryScaling::Kind::kYarn, .factor = 40}, false).magnitude,
            std::nullopt);
}

TEST_F(GgufRotary, OfKeysOfYarnThatPitonDoesNotComputeIsRefused) {
  const auto refusal = [&](const char* type, const char* key, double value) {
    GgufDescription description{.architecture = "llama"};
    description.add("rope.scaling.type", GgufValue::string(type));
    description.add("rope.scaling.factor", GgufValue::f32(4));
    description.add("rope.scaling.original_context_length", GgufValue::u32(4096));
    description.add(key, GgufValue::f32(value));
    return message_of(Fault::kData, [&] { read(description); });
  };
  EXPECT_THAT(refusal("yarn", "rope.scaling.yarn_ext_factor", 0),
              HasSubstr("llama.rope.scaling.yarn_ext_factor: got 0, wanted 1"));
  EXPECT_THAT(refusal("yarn", "rope.scaling.yarn_attn_factor", 1.5),
              HasSubstr("got 1.5, wanted 1, or 1.13863 as its formula has it"));
  EXPECT_THAT(refusal("linear", "rope.scaling.attn_factor", 1.5),
              HasSubstr("attn_factor: got 1.5, wanted 1, or scaling of type yarn or longrope"));
  EXPECT_THAT(refusal("linear", "rope.scaling.yarn_ext_factor", 1),
              HasSubstr("yarn_ext_factor: got 1, wanted 0, or scaling of type yarn"));
}

TEST_F(GgufRotary, OfATableOfAnotherSizeIsRefused) {
  const auto refusal = [&](const GgufDescription& description) {
    return message_of(Fault::kData, [&] { read(description); });
  };
  const std::vector<float> ones(32, 1);
  GgufDescription description{.architecture = "llama", .tables = {{kRopeDivisors, {1, 2, 4}}}};
  EXPECT_THAT(refusal(description),
              HasSubstr("x.gguf: rope_freqs.weight: wanted a table of 32 numbers"));
  description.tables = {{kLongDivisors, ones}};
  EXPECT_THAT(refusal(description), HasSubstr("rope_factors_short.weight: wanted a table of 32"));
  description.tables = {{kShortDivisors, ones}, {kLongDivisors, {1}}};
  EXPECT_THAT(refusal(description), HasSubstr("rope_factors_long.weight: wanted a table of 32"));
}

}  // namespace
}  // namespace piton
