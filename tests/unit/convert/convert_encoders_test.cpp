// Encoders from their Hugging Face folders through a checkpoint of Piton and back: every byte of
// the weights and the whole config.json. Formats that hold decoders alone are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/files/files.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "convert/convert.h"
#include "huggingface/config_keys.h"
#include "huggingface/hf_source.h"
#include "model/families.h"
#include "support/errors.h"
#include "support/host_machine.h"
#include "support/temp_folder.h"
#include "unit/convert/same_tensors.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ConvertedEncoder : public testing::Test {
 protected:
  static fs::path golden(const std::string& name) {
    return fs::path(PITON_SOURCE_DIR) / "tests/golden/encoders" / name;
  }

  // The golden folder without what Transformers computes.
  fs::path folder_of(const std::string& name) {
    const fs::path folder = dir_ / name;
    fs::create_directories(folder);
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(golden(name) / file, folder / file);
    return folder;
  }

  fs::path converted(const fs::path& load, const std::string& to) {
    const fs::path save = dir_ / fmt::format("{}-{}", to, next_++);
    SilentProgress silent;
    const ConvertReport report =
        convert(one_.machine, {.load = load.string(), .save = save.string(), .save_model_type = to},
                silent);
    EXPECT_TRUE(report.verified && report.verified->equal());
    EXPECT_THAT(report.notes, testing::IsEmpty());
    return save;
  }

  test::HostMachine one_;
  TempFolder dir_;
  int next_ = 0;
};

TEST_F(ConvertedEncoder, ComesBackToTheByte) {
  for (const char* name : {"bert", "bert-masked", "megatron-bert", "roberta", "t5", "t5-v1.1"}) {
    SCOPED_TRACE(name);
    const fs::path source = folder_of(name);
    const fs::path back = converted(converted(source, "piton"), "hf");
    test::expect_same_tensors(source, back);
    EXPECT_EQ(read_json<nlohmann::json>(read_text_file(back / "config.json")),
              read_json<nlohmann::json>(read_text_file(source / "config.json")));
  }
}

// Megatron's files have norms before the branches alone (tests/unit/api/model_megatron_test.cpp).
TEST_F(ConvertedEncoder, IsRefusedByFormatsThatDoNotHoldIt) {
  for (const char* to : {"mg", "gguf"}) {
    const fs::path source = folder_of(std::string(to) == "mg" ? "bert" : "t5");
    const std::string save = (dir_ / fmt::format("refused.{}", to)).string();
    SilentProgress silent;
    EXPECT_THAT(message_of(Fault::kData,
                           [&] {
                             convert(one_.machine,
                                     {.load = source.string(), .save = save, .save_model_type = to},
                                     silent);
                           }),
                HasSubstr(fmt::format("cannot be expressed in the format {}", to)));
    EXPECT_FALSE(fs::exists(save));
  }
}

TEST_F(ConvertedEncoder, WithoutAHeadIsNotConverted) {
  SilentProgress silent;
  const ConvertOptions options{.load = folder_of("bert-model").string(),
                               .save = (dir_ / "none").string(),
                               .save_model_type = "piton"};
  EXPECT_THAT(message_of(Fault::kData, [&] { convert(one_.machine, options, silent); }),
              HasSubstr("an encoder without a head for masked words is not converted"));
}

// A model of flags alone is of the family whose form of norms it has.
TEST_F(ConvertedEncoder, OfFlagsIsOfTheFamilyWithItsNorms) {
  ModelConfig model = preset("bert-tiny");
  EXPECT_EQ(hf_config_of(model, {}).config["model_type"], "megatron-bert");
  EXPECT_EQ(hf_config_of(model, {}).config["architectures"][0], "MegatronBertForPreTraining");
  model.encoder->post_norm = true;
  EXPECT_EQ(hf_config_of(model, {}).config["model_type"], "bert");
  model.encoder->pair_head = false;
  EXPECT_EQ(hf_config_of(model, {}).config["architectures"][0], "BertForMaskedLM");
  model.encoder->first_position = 2;
  EXPECT_EQ(hf_config_of(model, {}).config["model_type"], "roberta");
  model.encoder->token_types = 0;
  EXPECT_THAT(message_of(Fault::kData, [&] { hf_config_of(model, {}); }),
              HasSubstr("cannot be written"));
}

// Files of before 2019 name the parts of a norm otherwise, and have heads that config.json does not
// name.
TEST_F(ConvertedEncoder, OfOlderNamesIsRead) {
  const fs::path source = folder_of("bert");
  const fs::path older = dir_ / "older";
  fs::create_directories(older);
  std::string config = read_text_file(source / "config.json");
  config.replace(config.find("ForPreTraining"), 14, "ForMaskedLM");
  write_text_file(older / "config.json", config);
  std::map<std::string, Tensor> tensors;
  const SafetensorsFile file(source / "model.safetensors");
  for (const SafetensorsEntry& entry : file.entries()) {
    std::string name = entry.name;
    for (const auto& [now, then] : {std::pair{"LayerNorm.weight", "LayerNorm.gamma"},
                                    std::pair{"LayerNorm.bias", "LayerNorm.beta"}}) {
      if (name.ends_with(now)) name.replace(name.size() - std::strlen(now), std::strlen(now), then);
    }
    tensors[name] = file.tensor(entry.name);
  }
  write_safetensors(older / "model.safetensors", tensors);
  const HfSource read(older);
  EXPECT_FALSE(read.model().encoder->pair_head);
  EXPECT_TRUE(read.model().encoder->post_norm);
  EXPECT_THAT(read.notes(), testing::IsEmpty());
}

}  // namespace
}  // namespace piton
