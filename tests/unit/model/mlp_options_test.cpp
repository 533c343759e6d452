// The effect of the MLP flags on a model, and contradictions between them.
#include "model/mlp_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/canonical_tensors.h"
#include "model/config.h"
#include "support/errors.h"

namespace piton {
namespace {

ModelConfig resolve(const char* model, const std::vector<std::string>& flags) {
  ModelOptions options;
  OptionSet set;
  set.add("Model", options);
  std::vector<std::string> words{"--model", model};
  words.insert(words.end(), flags.begin(), flags.end());
  EXPECT_TRUE(set.parse(words).empty());
  return options.resolve(std::nullopt);
}

struct Wanted {
  std::vector<std::string> flags;
  ActivationKind kind;
  bool gated;
};

TEST(MlpOptions, NameTheActivation) {
  const Wanted all[] = {{{"--activation", "gelu"}, ActivationKind::kGeluTanh, false},
                        {{"--activation", "gelu-erf"}, ActivationKind::kGeluErf, false},
                        {{"--activation", "gelu-fast"}, ActivationKind::kGeluFast, false},
                        {{"--activation", "relu"}, ActivationKind::kRelu, false},
                        {{"--activation", "squared-relu"}, ActivationKind::kSquaredRelu, false},
                        {{"--squared-relu"}, ActivationKind::kSquaredRelu, false},
                        {{"--activation", "swiglu"}, ActivationKind::kSilu, true},
                        {{"--swiglu"}, ActivationKind::kSilu, true},
                        {{"--swiglu", "--activation", "swiglu"}, ActivationKind::kSilu, true},
                        {{"--activation", "geglu"}, ActivationKind::kGeluTanh, true},
                        {{"--activation", "geglu-erf"}, ActivationKind::kGeluErf, true},
                        {{"--geglu"}, ActivationKind::kGeluErf, true},
                        {{"--gelu-tanh"}, ActivationKind::kGeluTanh, true},
                        {{"--quick-geglu"}, ActivationKind::kGeluFast, true}};
  for (const Wanted& wanted : all) {
    for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
      const ModelConfig config = resolve(model, wanted.flags);
      EXPECT_EQ(config.activation, wanted.kind) << model << " " << wanted.flags.back();
      EXPECT_EQ(config.gated, wanted.gated) << model << " " << wanted.flags.back();
      EXPECT_EQ(config.ffn_hidden, resolve(model, {}).ffn_hidden);
      EXPECT_EQ(ModelOptions::of(config).resolve(config.vocabulary), config) << wanted.flags.back();
    }
  }
  EXPECT_EQ(resolve("gpt2-tiny", {}).activation, ActivationKind::kGeluTanh);
  EXPECT_EQ(resolve("llama-tiny", {}).activation, ActivationKind::kSilu);
}

TEST(MlpOptions, OfTheXModelGateHalfOfTheWidth) {
  const ModelConfig plain = resolve("gpt2-tiny", {});
  const ModelConfig config = resolve("gpt2-tiny", {"--is-x-model"});
  EXPECT_TRUE(config.gated);
  EXPECT_EQ(config.activation, ActivationKind::kGeluTanh);
  EXPECT_EQ(config.ffn_hidden, plain.ffn_hidden / 2);
  // The first matrix is as large as before, the second half of it: h f/2 weights fewer in each
  // layer.
  EXPECT_EQ(plain.parameters() - config.parameters(),
            plain.layers * plain.hidden * plain.ffn_hidden / 2);
  EXPECT_EQ(resolve("gpt2-tiny", {"--is-x-model", "--activation", "gelu-fast"}).activation,
            ActivationKind::kGeluFast);
  // A width that follows from --hidden-size is that of a plain MLP, 4 h, before it is halved.
  EXPECT_EQ(resolve("gpt2-tiny", {"--is-x-model", "--hidden-size", "128"}).ffn_hidden, 256);
  EXPECT_EQ(resolve("gpt2-tiny", {"--activation", "geglu", "--hidden-size", "384"}).ffn_hidden,
            1024);
}

TEST(MlpOptions, BoundTheGates) {
  const ModelConfig config =
      resolve("llama-tiny",
              {"--quick-geglu", "--activation-func-clamp-value", "7", "--glu-linear-offset", "1"});
  EXPECT_EQ(config.gate_rule, (GateRule{7, 1}));
  EXPECT_EQ(ModelOptions::of(config).resolve(config.vocabulary), config);
  const auto refused = [](const std::vector<std::string>& flags) {
    return message_of(Fault::kUsage, [&] { resolve("gpt2-tiny", flags); });
  };
  EXPECT_EQ(refused({"--activation-func-clamp-value", "7"}),
            "--activation-func-clamp-value: is for an activation with gates, such as --activation "
            "quick-geglu; leave it out");
  EXPECT_THAT(refused({"--glu-linear-offset", "1"}),
              testing::HasSubstr("--glu-linear-offset: is for an"));
  EXPECT_THAT(refused({"--quick-geglu", "--activation-func-clamp-value", "-1"}),
              testing::HasSubstr("--activation-func-clamp-value: got -1"));
}

// Flags give all that it has, and its parameters are counted.
TEST(MlpOptions, GiveAllThatGptOssHas) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{},
                                                {"--activation-func-clamp-value", "0"},
                                                {"--activation", "gelu"},
                                                {"--softmax-type", "vanilla"},
                                                {"--softmax-type", "off-by-one"},
                                                {"--disable-bias-linear", "--pre-tockens", "15"}}) {
    const ModelConfig config = resolve("gpt-oss-20b", flags);
    EXPECT_EQ(ModelOptions::of(config).resolve(config.vocabulary), config) << flags.size();
    std::int64_t elements = 0;
    for (const CanonicalShape& one : canonical_tensors(config)) elements += one.shape.elements();
    EXPECT_EQ(config.parameters(), elements);
  }
  EXPECT_EQ(resolve("gpt-oss-20b", {}).parameters(), 20914757184);
}

TEST(MlpOptions, NameTheLayersWithExperts) {
  using Layers = std::vector<std::int64_t>;
  const auto dense = [](const std::vector<std::string>& flags) {
    std::vector<std::string> all{"--num-experts", "4", "--num-layers", "6"};
    all.insert(all.end(), flags.begin(), flags.end());
    return resolve("llama-tiny", all).experts->dense_layers;
  };
  const auto pattern = [&](const char* text) { return dense({"--moe-layer-freq", text}); };
  EXPECT_EQ(dense({}), Layers{});
  EXPECT_EQ(pattern("1"), Layers{});
  EXPECT_EQ(pattern("2"), (Layers{1, 3, 5}));
  EXPECT_EQ(pattern("4"), (Layers{1, 2, 3, 5}));
  EXPECT_EQ(pattern("([0]*1+[1]*5)"), (Layers{0}));
  EXPECT_EQ(pattern("[1,0, 1] * 2"), (Layers{1, 4}));
  EXPECT_EQ(pattern("([1]+[0]*2)*2"), (Layers{1, 2, 4, 5}));
  EXPECT_EQ(dense({"--first-k-dense-replace", "2"}), (Layers{0, 1}));
  for (const char* text : {"2", "[1,0,1]*2", "([0]*1+[1]*5)"}) {
    const ModelConfig config =
        resolve("llama-tiny", {"--num-experts", "4", "--num-layers", "6", "--moe-layer-freq", text,
                               "--n-shared-experts", "2", "--moe-ffn-hidden-size", "24"});
    EXPECT_EQ(config.experts->shared_ffn_hidden, 48);
    EXPECT_EQ(ModelOptions::of(config).resolve(config.vocabulary), config) << text;
    std::int64_t elements = 0;
    for (const CanonicalShape& one : canonical_tensors(config)) elements += one.shape.elements();
    EXPECT_EQ(config.parameters(), elements);
  }
}

TEST(MlpOptions, RefuseLayersThatAreNotOfTheModel) {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& with) {
    std::vector<std::string> all{"--num-experts", "4", "--num-layers", "3"};
    all.insert(all.end(), flags.begin(), flags.end());
    EXPECT_THAT(message_of(Fault::kUsage, [&] { resolve("llama-tiny", all); }),
                testing::HasSubstr(with));
  };
  for (const char* text : {"", "x", "[2]*3", "[1]*3+", "[1,]*3", "([1]*3", "[1]*3)", "[1]*", "3[1]",
                           "[1]*99999999999", "((((((((([1]*3)))))))))", "[1] [1] [1]"}) {
    refused({"--moe-layer-freq", text}, "--moe-layer-freq: got ");
  }
  refused({"--moe-layer-freq", "[1]*2"}, "got [1]*2, which has 2 layers, and the model has 3");
  refused({"--moe-layer-freq", "[0]*3"}, "--moe-layer-freq: no layer has experts");
  refused({"--moe-layer-freq", "0"}, "--moe-layer-freq: got 0");
  refused({"--moe-layer-freq", "2", "--first-k-dense-replace", "1"},
          "--first-k-dense-replace: --moe-layer-freq names the layers too");
  refused({"--first-k-dense-replace", "4"}, "--first-k-dense-replace: got 4");
  refused({"--moe-shared-expert-gate"}, "give --moe-shared-expert-intermediate-size too");
  refused({"--n-shared-experts", "1", "--moe-shared-expert-intermediate-size", "8"},
          "--n-shared-experts: --moe-shared-expert-intermediate-size is given too");
  EXPECT_THAT(message_of(Fault::kUsage,
                         [] {
                           resolve("llama-tiny", {"--moe-layer-freq", "2"});
                         }),
              testing::HasSubstr("--moe-layer-freq: is for a mixture of experts"));
}

TEST(MlpOptions, SetTheRouter) {
  const auto facts = [](const std::vector<std::string>& given) {
    std::vector<std::string> all{"--num-experts", "8", "--moe-router-topk", "4"};
    all.insert(all.end(), given.begin(), given.end());
    return *resolve("llama-tiny", all).experts;
  };
  const ExpertFacts plain = facts({});
  EXPECT_EQ(plain.score, ScoreKind::kSoftmax);
  EXPECT_FALSE(plain.choice_bias);
  EXPECT_EQ(plain.bias_rate, 0);
  const std::vector<std::string> sigmoid{"--moe-router-score-function", "sigmoid"};
  const auto more = [&](std::vector<std::string> given) {
    given.insert(given.end(), sigmoid.begin(), sigmoid.end());
    return facts(given);
  };
  // Megatron-core divides sigmoids by their sum with this flag too, but not a single one.
  EXPECT_TRUE(more({"--moe-router-pre-softmax"}).normalized);
  EXPECT_FALSE(more({"--no-norm-topk-prob"}).normalized);
  EXPECT_FALSE(more({"--moe-router-topk", "1"}).normalized);
  const ExpertFacts biased = more({"--moe-router-enable-expert-bias"});
  EXPECT_EQ(biased.bias_rate, 1e-3);
  const ExpertFacts all = more({"--moe-router-enable-expert-bias", "--moe-router-bias-update-rate",
                                "0.5", "--moe-router-num-groups", "4", "--moe-router-group-topk",
                                "2", "--moe-router-topk-scaling-factor", "2.5"});
  EXPECT_EQ(all.bias_rate, 0.5);
  EXPECT_EQ(all.weight_factor, 2.5);
  EXPECT_EQ(all.groups, (ExpertGroups{.count = 4, .chosen = 2, .largest = 2}));
  EXPECT_EQ(more({"--moe-router-num-groups", "4", "--moe-router-group-topk", "2",
                  "--moe-router-group-scores", "1"})
                .groups.largest,
            1);
  // The options of a model give the model.
  ModelConfig model = preset("llama-tiny");
  const ExpertFacts softmax = facts({"--moe-router-enable-expert-bias"});
  EXPECT_TRUE(softmax.choice_bias);
  const ExpertFacts limited =
      facts({"--moe-expert-capacity-factor", "1.5", "--moe-pad-expert-input-to-capacity"});
  EXPECT_EQ(limited.capacity_factor, 1.5);
  EXPECT_FALSE(limited.keeps_first);
  const ExpertFacts first =
      facts({"--moe-expert-capacity-factor", "1", "--moe-token-drop-policy", "position"});
  EXPECT_TRUE(first.keeps_first);
  // As scripts of Megatron leave capacities out.
  EXPECT_EQ(facts({"--moe-expert-capacity-factor", "-1", "--moe-token-drop-policy", "position"}),
            plain);
  const ExpertFacts random = facts({"--moe-router-force-load-balancing"});
  EXPECT_TRUE(random.random_router && !random.weighs_inputs);
  ExpertFacts inputs = plain;
  inputs.choices = 1;
  inputs.normalized = false;
  inputs.weighs_inputs = true;
  for (const ExpertFacts& one : {plain, biased, all, softmax, limited, first, random, inputs,
                                 more({"--no-norm-topk-prob"})}) {
    model.experts = one;
    EXPECT_EQ(ModelOptions::of(model).resolve({}).experts, one);
  }
}

TEST(MlpOptions, RefuseRoutersThatCannotBe) {
  const auto refusal = [](const std::vector<std::string>& given) {
    std::vector<std::string> all{"--num-experts", "8", "--moe-router-topk", "4"};
    all.insert(all.end(), given.begin(), given.end());
    return message_of(Fault::kUsage, [&] { resolve("llama-tiny", all); });
  };
  EXPECT_THAT(refusal({"--moe-router-num-groups", "3", "--moe-router-group-topk", "2"}),
              HasSubstr("--moe-router-num-groups: got 3, wanted a divisor of --num-experts, which "
                        "is 8"));
  EXPECT_THAT(refusal({"--moe-router-num-groups", "4", "--moe-router-group-topk", "5"}),
              HasSubstr("--moe-router-group-topk: got 5, wanted 1 to 4"));
  EXPECT_THAT(refusal({"--moe-router-num-groups", "4", "--moe-router-group-topk", "1"}),
              HasSubstr("--moe-router-topk: got 4, and the 1 of 4 groups that a token can choose "
                        "of have 2 experts; raise --moe-router-group-topk"));
  EXPECT_THAT(refusal({"--moe-router-num-groups", "4", "--moe-router-group-topk", "2",
                       "--moe-router-group-scores", "3"}),
              HasSubstr("--moe-router-group-scores: got 3, wanted 1 to 2"));
  EXPECT_THAT(refusal({"--moe-router-num-groups", "4"}),
              HasSubstr("--moe-router-num-groups: got no --moe-router-group-topk; give both or "
                        "neither"));
  EXPECT_THAT(refusal({"--moe-router-bias-update-rate", "0.1"}),
              HasSubstr("--moe-router-bias-update-rate: got 0.1, and there is no bias"));
  EXPECT_THAT(refusal({"--moe-router-topk-scaling-factor", "0"}),
              HasSubstr("--moe-router-topk-scaling-factor: got 0"));
  EXPECT_THAT(message_of(Fault::kUsage,
                         [] {
                           resolve("llama-tiny", {"--moe-router-score-function", "sigmoid"});
                         }),
              HasSubstr("--moe-router-score-function: is for a mixture of experts, and there are "
                        "none; give --num-experts too, or leave it out"));
}

// MindSpeed-LLM's scripts of models whose layers all have experts.
TEST(MlpOptions, TakeMinusOneForNumbersOfLayersThatAreNotGiven) {
  const std::vector<std::string> experts{"--num-experts", "4"};
  std::vector<std::string> none = experts;
  none.insert(none.end(), {"--first-k-dense-replace", "-1", "--moe-layer-freq", "-1"});
  EXPECT_EQ(resolve("llama-tiny", none).experts, resolve("llama-tiny", experts).experts);
  EXPECT_FALSE(resolve("llama-tiny", {"--first-k-dense-replace", "-1"}).experts);
  none[3] = "1";
  EXPECT_EQ(resolve("llama-tiny", none).experts->dense_layers, std::vector<std::int64_t>{0});
}

// Megatron's fused kernel is of a GELU without a gate.
TEST(MlpOptions, OfAnUnfusedGeluChangeNoOtherActivation) {
  EXPECT_EQ(resolve("gpt2-tiny", {"--no-bias-gelu-fusion"}).activation, ActivationKind::kGeluErf);
  const ModelConfig given = resolve("gpt2-tiny", {"--swiglu", "--no-bias-gelu-fusion"});
  EXPECT_EQ(given.activation, ActivationKind::kSilu);
  EXPECT_TRUE(given.gated);
  const ModelConfig family = resolve("llama-tiny", {"--no-bias-gelu-fusion"});
  EXPECT_EQ(family.activation, ActivationKind::kSilu);
  EXPECT_TRUE(family.gated);
  EXPECT_EQ(resolve("gpt2-tiny", {"--squared-relu", "--no-bias-gelu-fusion"}).activation,
            ActivationKind::kSquaredRelu);
}

TEST(MlpOptions, RefuseContradictions) {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& with) {
    EXPECT_NE(message_of(Fault::kUsage, [&] { resolve("gpt2-tiny", flags); }).find(with),
              std::string::npos)
        << with;
  };
  refused({"--swiglu", "--activation", "geglu"},
          "--swiglu: means swiglu, but another flag says geglu");
  refused({"--activation", "gelu", "--no-bias-gelu-fusion"},
          "--no-bias-gelu-fusion: means gelu-erf, but another flag says gelu");
  refused({"--is-x-model", "--swiglu"}, "--is-x-model");
  refused({"--is-x-model", "--ffn-hidden-size", "77"},
          "--ffn-hidden-size: got 77, wanted an even number");
  refused({"--activation", "tanh"}, "gelu, gelu-erf, gelu-fast, relu, squared-relu, swiglu, geglu");
}

}  // namespace
}  // namespace piton
