// A config.json written from a model gives the same model when read back.
#include "huggingface/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "base/files.h"
#include "model/families.h"
#include "support/errors.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

ModelConfig golden_model(const std::string& name) {
  return hf_model(HfConfig::read(test::golden_folder(name)));
}

TEST(HfConfigKeys, OfAModelAreReadBackAsIt) {
  for (const std::string& name : test::golden_folders()) {
    ModelConfig model = golden_model(name);
    model.dtype = DType::kBF16;
    const Json theirs = Json::parse(read_text_file(test::golden_folder(name) / "config.json"));
    const std::string family = std::exchange(model.family, theirs["model_type"]);
    const HfDescription written = hf_config_of(model);
    ModelConfig again = hf_model(HfConfig(written.config.dump(), "config.json"));
    model.family = family;
    EXPECT_EQ(again, model) << name << written.config.dump(1);
    // Every key that Piton writes is one that Transformers writes too.
    if (!theirs.contains("transformers_version")) continue;
    for (const auto& [key, value] : written.config.items())
      EXPECT_TRUE(theirs.contains(key)) << name << ": " << key;
    EXPECT_EQ(written.config["model_type"], theirs["model_type"]) << name;
    EXPECT_EQ(written.config["architectures"], theirs["architectures"]) << name;
  }
}

TEST(HfConfigKeys, OfModelsThatTransformersLacksAreTheirPublishedOnes) {
  for (const char* name : {"internlm2", "baichuan", "baichuan-13b", "baichuan2"}) {
    ModelConfig model = golden_model(name);
    const Json theirs = Json::parse(read_text_file(test::golden_folder(name) / "config.json"));
    model.family = theirs["model_type"];
    const Json config = hf_config_of(model).config;
    EXPECT_EQ(config["model_type"], theirs["model_type"]);
    for (const auto& [key, value] : theirs.items()) {
      if (key != "torch_dtype" && key != "architectures") {
        EXPECT_EQ(config[key], value) << name << ": " << key;
      }
    }
  }
}

TEST(HfConfigKeys, HaveEveryKindOfRotaryScaling) {
  using Kind = RotaryScaling::Kind;
  for (const Kind kind :
       {Kind::kLinear, Kind::kDynamic, Kind::kLlama3, Kind::kYarn, Kind::kLongrope}) {
    ModelConfig model = golden_model("llama");
    RotaryScaling& scaling = model.rotary_scaling;
    scaling = {.kind = kind, .factor = 4, .original_positions = 32};
    if (kind == Kind::kLinear || kind == Kind::kDynamic)
      scaling.original_positions = model.max_positions;
    if (kind == Kind::kLlama3) scaling.high = 8;
    if (kind == Kind::kYarn) scaling.fast = 16;
    if (kind == Kind::kYarn || kind == Kind::kLongrope) scaling.magnitude = 1.25;
    if (kind == Kind::kLongrope) {
      scaling.short_factors = {1, 1.5, 2, 2.5};
      scaling.long_factors = {2, 3, 4, 5};
    }
    const HfDescription written = hf_config_of(model);
    EXPECT_EQ(hf_model(HfConfig(written.config.dump(), "config.json")).rotary_scaling, scaling)
        << written.config.dump(1);
  }
}

TEST(HfConfigKeys, AreOfTheFamilyThatHoldsTheModel) {
  ModelConfig model = golden_model("llama");
  EXPECT_EQ(hf_config_of(model).config["model_type"], "llama");
  model.window_before = 15;
  EXPECT_EQ(hf_config_of(model).config["model_type"], "mistral");
  model.family = "gpt2";  // Megatron's decoder with the flags of LLaMA
  model.window_before.reset();
  EXPECT_EQ(hf_config_of(model).config["model_type"], "llama");
  model.qkv_biases = true;
  EXPECT_EQ(hf_config_of(model).config["model_type"], "qwen2");
}

// Transformers' LLaMA turns every channel, whatever the key says; Phi-3 does not.
TEST(HfConfigKeys, OfPartlyTurnedHeadsAreNotThoseOfLlama) {
  ModelConfig model = golden_model("llama");
  model.rotary_share = 0.5;
  EXPECT_EQ(hf_config_of(model).config["model_type"], "phi3");
}

TEST(HfConfigKeys, OfAModelThatNoFamilyHoldsAreRefusedByName) {
  const auto message = [](const std::string& name, const std::function<void(ModelConfig&)>& edit) {
    ModelConfig model = golden_model(name);
    edit(model);
    return message_of(Fault::kData, [&] { hf_config_of(model); });
  };
  EXPECT_THAT(message("llama", [](ModelConfig& m) { m.rotary_pairs = true; }),
              HasSubstr("no family of Hugging Face holds this model (llama): rotary positions of "
                        "interleaved channels cannot be written"));
  EXPECT_THAT(message("gpt2", [](ModelConfig& m) { m.norm = NormKind::kRms; }),
              HasSubstr("(gpt2): its kind of norm cannot be written"));
  EXPECT_THAT(message("gpt2", [](ModelConfig& m) { m.window_before = 3; }),
              HasSubstr("its attention window"));
  // Transformers' dynamic angles begin at the longest sequence.
  EXPECT_THAT(message("llama",
                      [](ModelConfig& m) {
                        m.rotary_scaling = {.kind = RotaryScaling::Kind::kDynamic,
                                            .factor = 4,
                                            .original_positions = 32};
                      }),
              HasSubstr("its rotary positions"));
}

}  // namespace
}  // namespace piton
