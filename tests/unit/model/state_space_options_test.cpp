// The flags of layers of Mamba-2 and of short convolutions: what they make of a model, and what is
// refused.
#include "model/state_space_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/config.h"
#include "model/families.h"
#include "support/errors.h"
#include "unit/model/made_model.h"

namespace piton {
namespace {

using test::elements_of;

ModelConfig made(const std::vector<std::string>& flags, const std::string& base = "llama-tiny") {
  return test::made_model(flags, base);
}

TEST(StateSpaceOptions, GiveTheLayersOfAPattern) {
  // llama-tiny has four layers; Megatron-core counts letters.
  for (const char* layers : {"4", "8"}) {
    const ModelConfig config = made({"--hybrid-override-pattern", "M-M-*-M-", "--num-layers",
                                     layers, "--mamba-head-dim", "16", "--mamba-num-groups", "2"});
    EXPECT_EQ(config.layers, 4);
    EXPECT_TRUE(config.has_states(0) && config.has_states(1) && config.has_states(3));
    EXPECT_FALSE(config.has_states(2));
    EXPECT_EQ(config.state_layers(), 3);
    EXPECT_EQ(config.state_space->heads, 2 * config.hidden / 16);
    EXPECT_EQ(config.parameters(), elements_of(config));
  }
  const ModelConfig given =
      made({"--hybrid-layer-pattern", "M-M-M-M-", "--mamba-num-heads", "6", "--mamba-ngroups", "3",
            "--mamba-headdim", "10", "--mamba-d-state", "12", "--mamba-d-conv", "5"});
  EXPECT_EQ(given.state_space, (StateSpaceFacts{{}, 6, 3, 10, 12, 5}));
  EXPECT_EQ(given.state_layers(), 4);
  EXPECT_EQ(given.parameters(), elements_of(given));
  // A pattern says how many layers there are, and which have experts.
  const auto mixed = [](const char* pattern) {
    return made(
        {"--model-family", "mixtral", "--hybrid-override-pattern", pattern, "--hidden-size", "64",
         "--num-attention-heads", "4", "--num-experts", "4", "--vocab-size", "100",
         "--max-position-embeddings", "64", "--ffn-hidden-size", "96", "--mamba-num-groups", "1"},
        "");
  };
  const ModelConfig experts = mixed("MEM-*EMM-M");
  EXPECT_EQ(experts.layers, 6);
  EXPECT_EQ(experts.experts->dense_layers, (std::vector<std::int64_t>{1, 3, 4, 5}));
  EXPECT_EQ(experts.bare_layers, (std::vector<std::int64_t>{3, 5}));
  EXPECT_TRUE(experts.has_experts(0) && !experts.has_experts(1) && experts.has_mlp(1));
  EXPECT_EQ(mixed("MEM*E").expert_layers(), 2);
  for (const ModelConfig& one : {experts, mixed("MEM*E")})
    EXPECT_EQ(one.parameters(), elements_of(one));
  const ModelConfig bare = made({"--hybrid-override-pattern", "MM-*M", "--mamba-num-groups", "2"});
  EXPECT_EQ(bare.layers, 4);
  EXPECT_EQ(bare.bare_layers, (std::vector<std::int64_t>{0, 2, 3}));
  EXPECT_EQ(bare.parameters(), elements_of(bare));
  const ModelConfig alone = made({"--hybrid-override-pattern=-M--*", "--mamba-num-groups", "2"});
  EXPECT_EQ(alone.layers, 4);
  EXPECT_EQ(alone.mlp_layers, (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(alone.state_layers(), 1);
  EXPECT_EQ(alone.parameters(), elements_of(alone));
}

// Made by allocate_layers() of megatron-core 0.16.1 (ssm/mamba_hybrid_layer_allocation.py).
TEST(StateSpaceOptions, PlaceSharesAsMegatronDoes) {
  EXPECT_EQ(StateSpaceOptions::letters_of(8, 0.25, 0.5), "M-*-M*--");
  EXPECT_EQ(StateSpaceOptions::letters_of(10, 0.2, 0), "MMM*MM*MMM");
  EXPECT_EQ(StateSpaceOptions::letters_of(48, 0.3, 0),
            "MM*MMM*MM*MM*MM*MMM*MM*MM*MM*MMM*MM*MM*MM*MMM*MM");
  EXPECT_EQ(StateSpaceOptions::letters_of(48, 0.08, 0.5),
            "M-M-M--M-*M-M-M-M--*M-M-M-M-*M--M-M-M-*M-M--M-M-");
  EXPECT_EQ(StateSpaceOptions::letters_of(56, 0.08, 0.5),
            "M-M-M--M-M*-M-M-M-M--M*-M-M-M-M-M*--M-M-M-M-M*-M--M-M-M-");
  EXPECT_EQ(StateSpaceOptions::letters_of(10, 0, 0.3), "MM-MMM-MM-");
  EXPECT_EQ(StateSpaceOptions::letters_of(10, 0.1, 0.1), "MMMMM*MMM-");
  EXPECT_EQ(StateSpaceOptions::letters_of(24, 0.125, 0.375), "M-MM-*M-M-MM*-M-M-*MM-M-");
  EXPECT_EQ(StateSpaceOptions::letters_of(13, 0.5, 0.25), "M*-*M*M*-*M*-");
  EXPECT_EQ(StateSpaceOptions::letters_of(5, 0, 0), "MMMMM");
  EXPECT_EQ(StateSpaceOptions::letters_of(48, 0.5, 0.2),
            "M*-*M*M*-*M*-*M*M*-*M*-**M*-*M*M*-*M*-*M*M*-*M*-");
  // --num-layers counts letters there.
  const ModelConfig config =
      made({"--is-hybrid-model", "--hybrid-attention-ratio", "0.25", "--hybrid-mlp-ratio", "0.5",
            "--num-layers", "8", "--mamba-num-groups", "2"});
  EXPECT_EQ(*StateSpaceOptions::of(config).pattern, StateSpaceOptions::letters_of(8, 0.25, 0.5));
  const ModelConfig plain =
      made({"--is-hybrid-model", "--num-layers", "3", "--mamba-num-groups", "2"});
  EXPECT_EQ(*StateSpaceOptions::of(plain).pattern, "MMM");
}

TEST(StateSpaceOptions, RefuseWhatIsNoPattern) {
  const auto refused = [](std::vector<std::string> flags, const char* with,
                          const std::string& base = "llama-tiny") {
    EXPECT_THAT(message_of(Fault::kUsage, [&] { made(flags, base); }), testing::HasSubstr(with));
  };
  const auto pattern = [&](const char* letters, const char* with) {
    refused({std::string("--hybrid-override-pattern=") + letters}, with);
  };
  pattern("M-M-X-M-", "--hybrid-override-pattern: got 'X' as letter 5 of M-M-X-M-, wanted M");
  pattern("M-C-*-M-",
          "got M-C-*-M-, wanted layers of Mamba-2 (M) or short convolutions (C), not both");
  pattern("", "--hybrid-override-pattern: is empty");
  pattern("M-M-M-", "--num-layers: got 4, but --hybrid-override-pattern has 3 layers of 6 letters");
  pattern("M-MEM-M-", "M-MEM-M- has experts (E); give --num-experts too");
  refused({"--hybrid-mlp-ratio", "0.5"}, "--hybrid-mlp-ratio: is for --is-hybrid-model");
  refused({"--is-hybrid-model", "--hybrid-attention-ratio", "0.6", "--hybrid-mlp-ratio", "0.5"},
          "--hybrid-attention-ratio: got 0.6, with --hybrid-mlp-ratio 0.5");
  refused({"--is-hybrid-model", "--num-layers", "2000000000"}, "--num-layers: got 2000000000");
  refused({"--is-hybrid-model", "--num-experts", "4"}, "--num-experts: of a hybrid model");
  refused({"--mamba-num-heads", "4"}, "give --hybrid-override-pattern too");
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--hybrid-override-pattern", "M-M-*-M-", "--mamba-head-dim", "16"});
    return more;
  };
  refused(with({"--mamba-num-groups", "3"}),
          "--mamba-num-groups: got 3, wanted a divisor of --mamba-num-heads");
  refused(with({"--mamba-num-groups", "1", "--mamba-state-dim", "300"}),
          "--mamba-state-dim: got 300");
  refused(with({"--mamba-num-groups", "1", "--mamba-d-conv", "256"}), "--mamba-d-conv: got 256");
  refused({"--hybrid-override-pattern", "M-M-*-M-", "--mamba-head-dim", "47"},
          "--mamba-head-dim: got 47, wanted a divisor of twice --hidden-size");
  const auto not_with = [&](std::vector<std::string> more, const char* what) {
    more.insert(more.end(), {"--mamba-num-groups", "1"});
    refused(with(more), what);
  };
  not_with({"--linear-attention-freq", "2"}, "is not with --linear-attention-freq");
  not_with({"--multi-latent-attention", "--kv-lora-rank", "20"},
           "is not with --multi-latent-attention");
  not_with({"--sparse-mode", "5"}, "reads the tokens of a prompt in order");
  not_with({"--post-norm"}, "--post-norm: is not for layers of Mamba-2");
  not_with({"--mtp-num-layers", "1"}, "is of Mamba-2 or has a short convolution");
}

TEST(ShortConvolutions, AreTheLetterCOfAPattern) {
  const ModelConfig config = made({"--hybrid-override-pattern", "C-C-*-C-",
                                   "--short-conv-kernel-dim", "5", "--short-conv-bias"});
  EXPECT_EQ(config.short_convolution, (ShortConvolutionFacts{{2}, 5, true}));
  EXPECT_FALSE(config.state_space);
  EXPECT_TRUE(config.has_states(0) && config.has_states(1) && config.has_states(3));
  EXPECT_EQ(config.state_layers(), 3);
  const ModelConfig plain = made({"--hybrid-override-pattern=C-CC-*"});
  EXPECT_EQ(plain.short_convolution, (ShortConvolutionFacts{{3}, 3, false}));
  EXPECT_EQ(plain.bare_layers, (std::vector<std::int64_t>{1, 3}));
  for (const ModelConfig& one : {config, plain}) {
    EXPECT_EQ(one.parameters(), elements_of(one));
    EXPECT_EQ(ModelOptions::of(one).resolve({}), one);
  }
  // Letters change the layers of a preset, and what they are.
  const auto of_preset = [](const char* letters) {
    return made({std::string("--hybrid-override-pattern=") + letters, "--num-layers", "3"},
                "lfm2-350m");
  };
  EXPECT_EQ(of_preset("C-*-*-").short_convolution->attention_layers,
            (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(of_preset("*-*-*-").state_space && !of_preset("*-*-*-").short_convolution);
  EXPECT_TRUE(of_preset("M-*-*-").state_space && !of_preset("M-*-*-").short_convolution);
}

// LFM2 350M, 700M and 1.2B, and LFM2 8B A1B with its biases of choices, as Hugging Face counts
// them.
TEST(ShortConvolutions, OfPresetsHaveTheParametersOfPublishedModels) {
  for (const auto& [name, parameters] : {std::pair{"lfm2-350m", 354'483'968LL},
                                         {"lfm2-700m", 742'489'344LL},
                                         {"lfm2-1.2b", 1'170'340'608LL},
                                         {"lfm2-8b-a1b", 8'339'929'856LL + 22 * 32}}) {
    EXPECT_EQ(preset(name).parameters(), parameters) << name;
    EXPECT_EQ(preset(name).parameters(), elements_of(preset(name))) << name;
  }
}

TEST(ShortConvolutions, AreRefusedWhereTheyCannotBe) {
  const auto refused = [](std::vector<std::string> flags, const char* with) {
    EXPECT_THAT(message_of(Fault::kUsage, [&] { made(flags, "llama-tiny"); }),
                testing::HasSubstr(with));
  };
  refused({"--short-conv-kernel-dim", "4"},
          "--short-conv-kernel-dim: is for short convolutions; give --hybrid-override-pattern");
  const auto with = [&](std::vector<std::string> more, const char* what) {
    more.insert(more.begin(), {"--hybrid-override-pattern", "C-C-*-C-"});
    refused(more, what);
  };
  with({"--short-conv-kernel-dim", "0"}, "--short-conv-kernel-dim: got 0");
  with({"--short-conv-kernel-dim", "256"}, "--short-conv-kernel-dim: got 256");
  with({"--mamba-num-heads", "4"}, "--mamba-num-heads: is for layers of Mamba-2");
  with({"--linear-attention-freq", "2"}, "is not with --linear-attention-freq");
  with({"--multi-latent-attention", "--kv-lora-rank", "20"},
       "is not with --multi-latent-attention");
  with({"--sparse-mode", "5"}, "reads the tokens of a prompt in order");
  with({"--post-norm"}, "--post-norm: is not for short convolutions");
  with({"--mtp-num-layers", "1"}, "has a short convolution");
}

}  // namespace
}  // namespace piton
