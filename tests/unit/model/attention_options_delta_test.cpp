// The flags of layers with the gated delta rule: what they make of a model, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/attention_options.h"
#include "model/config.h"
#include "support/errors.h"
#include "unit/model/made_model.h"

namespace piton {
namespace {

using test::elements_of;

ModelConfig made_with_states(const std::vector<std::string>& flags,
                             const std::string& base = "llama-tiny") {
  return test::made_model(flags, base);
}

TEST(DeltaOptions, GiveTheLayersOfMegatron) {
  const ModelConfig plain = made_with_states({"--linear-attention-freq", "4"});
  EXPECT_EQ(plain.delta, DeltaFacts{});
  EXPECT_TRUE(plain.has_states(0) && plain.has_states(2) && !plain.has_states(3));
  EXPECT_EQ(plain.state_layers(), 3);
  EXPECT_FALSE(plain.output_gate);
  const ModelConfig given = made_with_states(
      {"--linear-attention-freq", "3", "--linear-num-key-heads", "2", "--linear-num-value-heads",
       "6", "--linear-key-head-dim", "10", "--linear-value-head-dim", "12",
       "--linear-conv-kernel-dim", "5", "--attention-output-gate", "--qk-layernorm"});
  EXPECT_EQ(given.delta, (DeltaFacts{3, 2, 6, 10, 12, 5}));
  EXPECT_TRUE(given.output_gate);
  for (const ModelConfig& config : {plain, given})
    EXPECT_EQ(config.parameters(), elements_of(config));
  EXPECT_EQ(made_with_states({"--linear-attention-freq", "1"}).state_layers(), 0);
}

TEST(DeltaOptions, OfAFamilyAreThoseOfQwen) {
  const auto made = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--num-layers", "8", "--hidden-size", "64", "--num-attention-heads",
                               "4", "--vocab-size", "100", "--max-position-embeddings", "64"});
    return made_with_states(flags, "");
  };
  const ModelConfig dense = made({"--model-family", "qwen3_5"});
  EXPECT_TRUE(dense.output_gate && dense.gains_from_one && dense.head_norms && !dense.experts);
  EXPECT_EQ(dense.state_layers(), 6);
  EXPECT_EQ(dense.parameters(), elements_of(dense));
  // Layers that predict later tokens have attention.
  const ModelConfig later = made({"--model-family", "qwen3_5", "--mtp-num-layers", "2"});
  EXPECT_EQ(later.parameters(), elements_of(later));
  EXPECT_EQ(later.state_layers(), 6);
  const ModelConfig experts = made({"--model-family", "qwen3_next", "--num-experts", "4",
                                    "--moe-router-topk", "2", "--linear-num-value-heads", "16"});
  EXPECT_EQ(experts.delta->value_heads, 16);
  EXPECT_TRUE(experts.experts->shared_gate);
  EXPECT_EQ(experts.parameters(), elements_of(experts));
}

TEST(DeltaOptions, RefuseWhatSuchModelsDoNotHave) {
  const auto refused = [](std::vector<std::string> flags, const char* with,
                          const std::string& model = "llama-tiny") {
    EXPECT_THAT(message_of(Fault::kUsage, [&] { made_with_states(flags, model); }),
                testing::HasSubstr(with));
  };
  refused({"--linear-num-key-heads", "4"}, "give --linear-attention-freq too");
  refused({"--linear-attention-freq", "0"}, "--linear-attention-freq: got 0");
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--linear-attention-freq", "4"});
    return more;
  };
  refused(with({"--linear-num-value-heads", "24"}),
          "--linear-num-value-heads: got 24, wanted a multiple of --linear-num-key-heads");
  refused(with({"--linear-conv-kernel-dim", "256"}), "--linear-conv-kernel-dim: got 256");
  refused(with({"--multi-latent-attention", "--kv-lora-rank", "20"}),
          "--linear-attention-freq: is not with --multi-latent-attention");
  refused(with({"--sparse-mode", "5"}), "--linear-attention-freq: reads the tokens of a prompt");
  refused(with({"--post-norm"}), "--post-norm: is not for layers with the gated delta rule");
  refused(
      {"--linear-attention-freq", "3", "--mtp-num-layers", "1"},
      "--mtp-num-layers: is not for a model whose last layer, which they are like, has the gated "
      "delta rule");
  refused(with({}), "is for decoders", "bert-tiny");
  refused({"--attention-output-gate"}, "--attention-output-gate: is for decoders", "bert-tiny");
}

}  // namespace
}  // namespace piton
