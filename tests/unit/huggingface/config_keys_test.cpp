// A config.json written from a model gives the same model when read back.
#include "huggingface/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "base/files/files.h"
#include "huggingface/family.h"
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

// Classifiers as Transformers writes them; a model of other labels has the folder's other keys.
TEST(HfConfigKeys, OfAClassifierAreReadBackAsIt) {
  for (const char* name :
       {"bert", "megatron-bert", "roberta", "xlm-roberta", "qwen2", "gpt2", "gpt-neox", "falcon",
        "opt", "bert-number", "bert-several", "roberta-several", "qwen2-several"}) {
    const auto folder = std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/labels" / name;
    const Json theirs = Json::parse(read_text_file(folder / "config.json"));
    ModelConfig model = hf_model(HfConfig::read(folder));
    EXPECT_EQ(hf_config_of(model, theirs).config, theirs) << name;
    const Json alone = hf_config_of(model, Json()).config;
    EXPECT_EQ(alone.at("id2label"), theirs.at("id2label")) << name;
    EXPECT_EQ(model_difference(model, hf_model(HfConfig(alone.dump(), "config.json"))), "");
    set_labels(model, {.count = 4});
    const Json other = hf_config_of(model, theirs).config;
    EXPECT_EQ(other.at("architectures"), theirs.at("architectures")) << name;
    EXPECT_EQ(other.at("id2label").size(), 4U);
    EXPECT_EQ(other.at("label2id").at("LABEL_3"), 3);
    EXPECT_EQ(other.at("model_type"), theirs.at("model_type"));
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

TEST(HfConfigKeys, OfExpertsAreThoseOfTheFamilyThatWeighsThemSo) {
  ModelConfig model = golden_model("llama");
  model.experts = {.experts = 4, .choices = 2, .balance_factor = 0.01};
  EXPECT_EQ(hf_config_of(model).config["model_type"], "mixtral");
  model.experts->normalized = false;
  EXPECT_THAT(message_of(Fault::kData, [&] { hf_config_of(model); }),
              HasSubstr("no family of Hugging Face holds this model (llama): its experts cannot"));
  model.head_norms = true;
  EXPECT_EQ(hf_config_of(model).config["model_type"], "qwen3_moe");
}

// Transformers' LLaMA turns every channel, whatever the key says; Phi-3 does not.
TEST(HfConfigKeys, OfPartlyTurnedHeadsAreNotThoseOfLlama) {
  ModelConfig model = golden_model("llama");
  model.rotary_share = 0.5;
  EXPECT_EQ(hf_config_of(model).config["model_type"], "phi3");
}

Json golden_keys(const std::string& name) {
  return Json::parse(read_text_file(test::golden_folder(name) / "config.json"));
}

// What the same weights say after a training that changed nothing but them: the same file.
TEST(HfConfigKeys, OfAModelThatComesFromAFolderAreThoseOfTheFolder) {
  for (const std::string& name : test::golden_folders()) {
    Json origin = golden_keys(name);
    origin["of_tomorrow"] = {{"a", 1}};
    ModelConfig model = golden_model(name);
    model.hidden_dropout = 0.3;  // which only training reads
    model.init_deviation = 0.5;
    model.xavier_weights = true;
    const HfDescription written = hf_config_of(model, origin);
    EXPECT_EQ(written.config, origin) << name;
    EXPECT_EQ(written.note, "");
    const std::string type = origin["model_type"];
    EXPECT_THAT(written.family.model_types, testing::Contains(type));
    // By the name alone the family stays too.
    const HfDescription named = hf_config_of(model, {{"model_type", type}});
    EXPECT_THAT(named.family.model_types, testing::Contains(type)) << name;
    EXPECT_EQ(named.note, "");
  }
}

TEST(HfConfigKeys, OfAModelThatHasChangedAreTheFoldersButForWhatChanged) {
  const auto changed = [](const std::string& name, const std::function<void(ModelConfig&)>& edit,
                          const std::function<void(Json&)>& in_words_of_4 = {}) {
    Json origin = golden_keys(name);
    if (in_words_of_4) in_words_of_4(origin);
    origin["of_tomorrow"] = 1;
    ModelConfig model = hf_model(HfConfig(origin.dump(), "config.json"));
    edit(model);
    const HfDescription written = hf_config_of(model, origin);
    EXPECT_EQ(written.note, "");
    EXPECT_EQ(written.config["of_tomorrow"], 1) << written.config.dump(1);
    EXPECT_EQ(written.config["model_type"], origin["model_type"]);
    EXPECT_EQ(written.config["architectures"], origin["architectures"]);
    EXPECT_EQ(model_difference(hf_model(HfConfig(written.config.dump(), "x")), model), "");
    return written.config;
  };
  const auto base = [](ModelConfig& m) { m.rotary_base = 5e4; };
  EXPECT_EQ(changed("llama", base)["rope_parameters"]["rope_theta"], 5e4);
  const Json older = changed("llama", base, [](Json& config) {
    config.erase("rope_parameters");
    config["rope_theta"] = 1e4;
    config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  });
  EXPECT_FALSE(older.contains("rope_theta") || older.contains("rope_scaling")) << older.dump(1);
  EXPECT_EQ(older["rope_parameters"]["rope_type"], "linear");
  EXPECT_EQ(changed("internlm2", base)["rope_theta"], 5e4);
  EXPECT_EQ(changed("internlm", base)["rotary"]["base"], 5e4);
  const auto longer = [](ModelConfig& m) { m.max_positions = 512; };
  EXPECT_EQ(changed("internlm", longer)["max_position_embeddings"], 512);
  EXPECT_EQ(changed("baichuan-13b", longer)["model_max_length"], 512);
  EXPECT_FALSE(changed("baichuan-13b", longer).contains("max_position_embeddings"));
  const Json wide = changed("qwen2", [](ModelConfig& m) { m.window_before = 4; });
  EXPECT_EQ(wide["sliding_window"], 5);
  EXPECT_EQ(wide["layer_types"][0], "sliding_attention");
}

// A family never says of a model what it is not.
TEST(HfConfigKeys, OfAModelThatItsFolderCannotSayAreOfAnotherFamilyWithANote) {
  ModelConfig model = golden_model("baichuan");
  model.window_before = 4;
  const HfDescription other = hf_config_of(model, golden_keys("baichuan"));
  EXPECT_EQ(other.config["model_type"], "mistral");
  EXPECT_EQ(other.note,
            "the weights come from a folder of model_type baichuan, which cannot say its attention "
            "window: the folder is of model_type mistral");
  EXPECT_EQ(hf_config_of(golden_model("llama"), {{"model_type", "mamba"}}).note,
            "the weights come from a folder of model_type mamba, which Piton does not know: the "
            "folder is of model_type llama");
  model = golden_model("baichuan-13b");
  model.window_before = 4;
  EXPECT_THAT(message_of(Fault::kData, [&] { hf_config_of(model, golden_keys("baichuan-13b")); }),
              HasSubstr("its attention window cannot be written"));
  model = golden_model("baichuan2");
  model.rotary_base = 5e4;
  EXPECT_THAT(message_of(Fault::kData, [&] { hf_config_of(model, golden_keys("baichuan2")); }),
              HasSubstr("its rotary positions cannot be written"));
}

// Of a model from another format the family alone is known: no key of a folder is kept, also of a
// family that has a default for each.
TEST(HfConfigKeys, OfAModelWithoutAFolderAreWhole) {
  const HfDescription mamba = hf_config_of(golden_model("mamba2"), {{"model_type", "mamba2"}});
  EXPECT_EQ(mamba.note, "");
  EXPECT_EQ(mamba.config["architectures"][0], "Mamba2ForCausalLM");
  EXPECT_EQ(mamba.config["expand"], 2);
}

// StableLM turns a quarter by default, so the key is written where the whole turns.
TEST(HfConfigKeys, OfWhollyTurnedHeadsAreSaidInStableLm) {
  ModelConfig model = golden_model("stablelm");
  model.rotary_share = 1;
  const Json config = hf_config_of(model, {{"model_type", "stablelm"}}).config;
  EXPECT_EQ(config["model_type"], "stablelm");
  EXPECT_EQ(config["rope_parameters"]["partial_rotary_factor"], 1);
}

TEST(HfConfigKeys, OfAModelThatNoFamilyHoldsAreRefusedByName) {
  const auto message = [](const std::string& name, const std::function<void(ModelConfig&)>& edit) {
    ModelConfig model = golden_model(name);
    edit(model);
    return message_of(Fault::kData, [&] { hf_config_of(model); });
  };
  EXPECT_THAT(message("qwen3", [](ModelConfig& m) { m.rotary_pairs = true; }),
              HasSubstr("no family of Hugging Face holds this model (qwen3): rotary positions of "
                        "interleaved channels cannot be written"));
  // Transformers takes the longest sequence in its place.
  EXPECT_THAT(message("llama",
                      [](ModelConfig& m) {
                        m.rotary_scaling = {.kind = RotaryScaling::Kind::kDynamic,
                                            .factor = 4,
                                            .original_positions = 32};
                      }),
              HasSubstr("(llama): its rotary positions cannot be written"));
  // Transformers has no Phi-3 with it.
  EXPECT_THAT(message("phi3",
                      [](ModelConfig& m) {
                        m.rotary_share = 0.5;
                        m.rotary_scaling = {.kind = RotaryScaling::Kind::kLinear,
                                            .factor = 4,
                                            .original_positions = m.max_positions};
                      }),
              HasSubstr("its rotary positions cannot be written"));
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
