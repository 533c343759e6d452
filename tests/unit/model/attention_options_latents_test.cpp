// The flags of latent attention: what they make of a model, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/attention_options.h"
#include "model/config.h"
#include "support/errors.h"

namespace piton {
namespace {

ModelConfig made_of_latents(std::vector<std::string> flags,
                            const std::string& model = "llama-tiny") {
  flags.insert(flags.begin(), {"--model", model});
  ModelOptions options;
  OptionSet set;
  set.add("Model", options);
  EXPECT_TRUE(set.parse(flags).empty());
  const ModelConfig config = options.resolve(std::nullopt);
  if (config.latent) {
    ModelOptions again = ModelOptions::of(config);
    EXPECT_EQ(again.resolve(std::nullopt), config);
    options.settle(config);
    EXPECT_EQ(options.resolve(std::nullopt), config);
  }
  return config;
}

TEST(LatentOptions, GiveTheModelOfMegatron) {
  const ModelConfig plain =
      made_of_latents({"--multi-latent-attention", "--kv-lora-rank", "20", "--qk-layernorm"});
  EXPECT_EQ(plain.latent, (LatentFacts{.rank = 20}));
  EXPECT_EQ(plain.head_size, 192);
  EXPECT_EQ(plain.groups, plain.heads);
  EXPECT_TRUE(plain.rotary_pairs && plain.head_norms && !plain.qkv_biases);
  const ModelConfig older = made_of_latents({"--multi-head-latent-attention", "--q-lora-rank", "12",
                                             "--kv-lora-rank", "20", "--qk-nope-head-dim", "10",
                                             "--qk-rope-head-dim", "6", "--v-head-dim", "12"});
  EXPECT_EQ(older.latent, (LatentFacts{12, 20, 10, 6, 12}));
  EXPECT_FALSE(older.head_norms);
  // 4 layers of width 64 with 4 heads; of the rest both have as much.
  const std::int64_t attention = 64 * 12 + 12 * 4 * 16 + 64 * 26 + 20 * 4 * 22 + 4 * 12 * 64;
  ModelConfig llama = made_of_latents({});
  const std::int64_t grouped = 64 * 16 * (4 + 2 * 2 + 4);
  EXPECT_EQ(older.parameters() - llama.parameters(), 4 * (attention - grouped));
}

TEST(LatentOptions, ScaleScoresAndAnglesAsDeepSeekDoes) {
  const ModelConfig lite = made_of_latents({}, "deepseek-v2-lite");
  EXPECT_EQ(lite.parameters(), 15706484224);  // as published
  EXPECT_EQ(rotary_magnitude(lite.rotary_scaling), 1);
  const double magnitude = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(rotary_score_factor(lite.rotary_scaling), magnitude * magnitude);
  // Megatron's defaults: yarn from 4096 positions on, --mscale 1, --mscale-all-dim 0.
  const std::vector<std::string> latent{"--multi-latent-attention", "--kv-lora-rank", "20",
                                        "--rotary-scaling-factor", "40"};
  const RotaryScaling scaling = made_of_latents(latent).rotary_scaling;
  EXPECT_EQ(scaling.kind, RotaryScaling::Kind::kYarn);
  EXPECT_EQ(scaling.original_positions, 4096);
  EXPECT_DOUBLE_EQ(rotary_magnitude(scaling), 0.1 * std::log(40.0) + 1);
  EXPECT_EQ(rotary_score_factor(scaling), 1);
  std::vector<std::string> named = latent;
  named.insert(named.end(), {"--rope-type", "yarn", "--mscale", "0.707", "--mscale-all-dim",
                             "0.707", "--original-max-position-embeddings", "4096"});
  EXPECT_EQ(made_of_latents(named).rotary_scaling, lite.rotary_scaling);
}

TEST(LatentOptions, RefuseWhatSuchModelsDoNotHave) {
  const auto refused = [](std::vector<std::string> flags, const std::string& with,
                          const std::string& model = "llama-tiny") {
    if (flags.front() != "--q-lora-rank" && flags.front() != "--multi-latent-attention")
      flags.insert(flags.begin(), {"--multi-latent-attention", "--kv-lora-rank", "20"});
    EXPECT_THAT(message_of(Fault::kUsage, [&] { made_of_latents(flags, model); }),
                testing::HasSubstr(with));
  };
  refused({"--q-lora-rank", "4"}, "--q-lora-rank: is for --multi-latent-attention; give it too");
  refused({"--multi-latent-attention"}, "give --kv-lora-rank too");
  refused({"--qk-pos-emb-head-dim", "7"}, "--qk-pos-emb-head-dim: got 7, wanted an even number");
  refused({"--v-head-dim", "193"}, "--v-head-dim: got 193, wanted at most 192");
  refused({"--kv-channels", "64"}, "--kv-channels: got 64, wanted 192");
  refused({"--num-query-groups", "2"}, "--num-query-groups: got 2, wanted 4");
  refused({"--add-qkv-bias"}, "--add-qkv-bias: not with --multi-latent-attention");
  refused({"--position-embedding-type", "none"}, "--position-embedding-type: not with");
  refused({"--normalization", "LayerNorm"}, "--normalization: not with");
  refused({"--query-pre-attn-scalar", "3"}, "--query-pre-attn-scalar: not with");
  refused({"--kv-lora-rank", "0"}, "--kv-lora-rank: got 0");
  refused({"--rope-type", "yarn", "--rotary-scaling-type", "linear"},
          "--rope-type yarn: it means --rotary-scaling-type yarn, but that is linear");
  refused({"--mscale", "2"}, "--mscale: is not used by --rotary-scaling-type none");
  refused({"--rotary-scaling-type", "yarn", "--rotary-scaling-factor", "4", "--mscale", "2"},
          "--mscale: got 2, wanted 1, or a number above 0 with --mscale-all-dim");
  refused({"--position-embedding-type", "rope"}, "--model-family: not with", "t5-tiny");
}

}  // namespace
}  // namespace piton
