// The effect of the MLP flags on a model, and contradictions between them.
#include "model/mlp_options.h"

#include <gtest/gtest.h>

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
