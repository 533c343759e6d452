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

TEST_F(GgufRotary, OfNumbersThatAreNoFormulaHasTheDivisors) {
  EXPECT_EQ(read(described(8, 1.5, 2)).kind, RotaryScaling::Kind::kLlama3);
  const RotaryScaling scaling = read(described(8, 2, 2));
  EXPECT_EQ(scaling.kind, RotaryScaling::Kind::kLongrope);
  ASSERT_EQ(scaling.short_factors.size(), 32U);
  EXPECT_EQ(scaling.short_factors.back(), 8);
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
