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
                        {{"--no-bias-gelu-fusion"}, ActivationKind::kGeluErf, false},
                        {{"--activation", "gelu-fast"}, ActivationKind::kGeluFast, false},
                        {{"--activation", "swiglu"}, ActivationKind::kSilu, true},
                        {{"--swiglu"}, ActivationKind::kSilu, true},
                        {{"--swiglu", "--activation", "swiglu"}, ActivationKind::kSilu, true},
                        {{"--activation", "geglu"}, ActivationKind::kGeluTanh, true}};
  for (const Wanted& wanted : all) {
    for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
      const ModelConfig config = resolve(model, wanted.flags);
      EXPECT_EQ(config.activation, wanted.kind) << model << " " << wanted.flags.back();
      EXPECT_EQ(config.gated, wanted.gated) << model << " " << wanted.flags.back();
      EXPECT_EQ(config.ffn_hidden, resolve(model, {}).ffn_hidden);
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

TEST(MlpOptions, RefuseContradictions) {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& with) {
    EXPECT_NE(message_of(Fault::kUsage, [&] { resolve("gpt2-tiny", flags); }).find(with),
              std::string::npos)
        << with;
  };
  refused({"--swiglu", "--activation", "geglu"},
          "--swiglu: means swiglu, but another flag says geglu");
  refused({"--swiglu", "--no-bias-gelu-fusion"},
          "--no-bias-gelu-fusion: means gelu-erf, but another flag says swiglu");
  refused({"--is-x-model", "--swiglu"}, "--is-x-model");
  refused({"--is-x-model", "--ffn-hidden-size", "77"},
          "--ffn-hidden-size: got 77, wanted an even number");
  refused({"--activation", "tanh"}, "gelu, gelu-erf, gelu-fast, relu, swiglu, geglu");
}

}  // namespace
}  // namespace piton
