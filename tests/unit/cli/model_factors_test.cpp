// Flags of factors and windows of Megatron-core and MindSpeed-LLM as options.
#include "cli/compatibility/model_factors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/errors.h"
#include "train/run/pretrain_options.h"

namespace piton::cli {
namespace {

using testing::HasSubstr;

struct Factors {
  PretrainOptions options;
  OptionSet set;
  MegatronFlags flags;

  explicit Factors(const std::vector<std::string>& words) {
    options.add_to(set);
    set.set_foreign(&flags);
    set.parse(words);
    read_model_factors(flags, set, options.model);
  }
};

// MiniCPM-2B: hidden 2304, dim_model_base 256, 40 layers, scale_depth 1.4, scale_emb 12.
TEST(ModelFactors, OfMiniCpm) {
  const Factors factors({"--hidden-size", "2304", "--num-layers", "40", "--num-attention-heads",
                         "36", "--model", "llama-tiny", "--scale-emb", "12", "--dim-model-base",
                         "256", "--scale-depth", "1.4"});
  const ModelConfig config = factors.options.model.resolve(1000);
  EXPECT_EQ(config.embedding_factor, 12);
  EXPECT_EQ(config.logit_divisor, 9);
  EXPECT_EQ(config.branch_factor, 1.4 / std::sqrt(40.0));
  EXPECT_TRUE(Factors({"--add-output-layer-bias"}).options.model.head_bias);
}

TEST(ModelFactors, AreOfThePresetWhereItAloneHasTheSizes) {
  const Factors factors({"--model", "gpt2-124m", "--dim-model-base", "256", "--scale-depth", "3"});
  const ModelConfig config = factors.options.model.resolve(1000);
  EXPECT_EQ(config.logit_divisor, 3);
  EXPECT_EQ(config.branch_factor, 3 / std::sqrt(12.0));
  EXPECT_EQ(Factors({"--output-multiplier-scale", "0.25"}).options.model.logit_divisor, 4);
}

TEST(ModelFactors, OfAWindow) {
  for (const char* text : {"(127, 0)", "127,0", "[127,-1]"})
    EXPECT_EQ(Factors({"--window-size", text}).options.model.attention.window_before, 127) << text;
  EXPECT_FALSE(Factors({"--window-size", "(-1, -1)"}).options.model.attention.window_before);
}

TEST(ModelFactors, ThatAreNoneAreRefused) {
  const auto refusal = [](const std::vector<std::string>& words) {
    return message_of(Fault::kUsage, [&] { Factors factors(words); });
  };
  EXPECT_EQ(refusal({"--scale-depth", "0"}), "--scale-depth: got \"0\", wanted a number above 0");
  EXPECT_EQ(refusal({"--dim-model-base", "256"}),
            "--dim-model-base: is a share of a size of the model; give --hidden-size");
  EXPECT_EQ(refusal({"--output-multiplier-scale", "2", "--logits-scaling", "3"}),
            "--output-multiplier-scale: --logits-scaling says the same; leave one of the two out");
  EXPECT_THAT(
      refusal({"--hidden-size", "8", "--dim-model-base", "4", "--output-multiplier-scale", "2"}),
      HasSubstr("--output-multiplier-scale: --logits-scaling says the same"));
  EXPECT_THAT(refusal({"--window-size", "127"}), HasSubstr("wanted two numbers such as 4095,0"));
  EXPECT_THAT(refusal({"--window-size", "(127, 0, 1)"}), HasSubstr("wanted two numbers"));
  EXPECT_EQ(refusal({"--window-size", "(127, 3)"}),
            "--window-size: got 3 later keys, wanted 0: attention is causal in decoders");
}

}  // namespace
}  // namespace piton::cli
