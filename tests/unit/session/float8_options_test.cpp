// Which layers multiply in FP8, and back ends that have no such products.
#include "session/float8_options.h"

#include <gtest/gtest.h>

#include "kernels/reference/kernels.h"
#include "support/errors.h"

namespace piton {
namespace {

Float8Options options(const std::string& format, const std::string& recipe) {
  Float8Options given;
  given.format = format;
  given.recipe = recipe;
  return given;
}

ModelConfig model(DType dtype) {
  ModelConfig config;
  config.layers = 6;
  config.dtype = dtype;
  return config;
}

TEST(Float8Options, HybridHasE5M2ForGradientsAlone) {
  const ModelConfig config = model(DType::kBF16);
  EXPECT_EQ(options("hybrid", "blockwise").rules(config, false).products,
            (Float8Products{Float8Recipe::kBlockwise, Float8Format::kE5M2}));
  EXPECT_EQ(options("e4m3", "tensorwise").rules(config, false).products,
            (Float8Products{Float8Recipe::kTensorwise, Float8Format::kE4M3}));
  EXPECT_FALSE(Float8Options().rules(config, false).products.given());
}

TEST(Float8Options, LeaveFirstAndLastLayersInBf16) {
  const auto layers = [](const Float8Options& given) {
    std::string text;
    for (std::int64_t layer = 0; layer < 6; ++layer) {
      const Float8Rules rules = given.rules(model(DType::kBF16), false);
      text += rules.of_layer(layer, 6).given() ? '8' : '-';
    }
    return text;
  };
  Float8Options given = options("e4m3", "tensorwise");
  EXPECT_EQ(layers(given), "888888");
  given.ends_in_bf16 = true;
  EXPECT_EQ(layers(given), "-8888-");
  given.first_in_bf16 = 2;
  given.last_in_bf16 = 0;
  EXPECT_EQ(layers(given), "--8888");
}

TEST(Float8Options, AreRefusedForWeightsHeldAsCodes) {
  EXPECT_EQ(message_of(Fault::kUsage,
                       [] { options("e4m3", "tensorwise").rules(model(DType::kBF16), true); }),
            "--fp8-format e4m3: weights held as codes (--qlora) are multiplied in bf16 alone; "
            "leave one of them out");
}

class OldDevice final : public Kernels {
 public:
  std::string name() const override { return "old"; }
  std::int64_t packed_bytes(WeightForm, std::int64_t, std::int64_t, DType) const override {
    return 0;
  }
  std::int64_t row_tile() const override { return 1; }
  std::string float8_obstacle(Float8Recipe recipe) const override {
    return recipe == Float8Recipe::kBlockwise ? "device 0 is too old" : "";
  }

 private:
  void submit(const KernelCall&, Stream&) override {}
};

TEST(Float8Options, AreRefusedWhereTheBackEndLacksThem) {
  const OldDevice old;
  Float8Rules rules;
  check_float8(old, rules);
  rules.products.recipe = Float8Recipe::kTensorwise;
  check_float8(old, rules);
  rules.products.recipe = Float8Recipe::kBlockwise;
  check_float8(*make_reference_kernels(), rules);
  EXPECT_EQ(message_of(Fault::kUsage, [&] { check_float8(old, rules); }),
            "--fp8-format: device 0 is too old; leave it out, or use --kernels cpu");
}

}  // namespace
}  // namespace piton
