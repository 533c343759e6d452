// Windows of attention in GGUF files.
#include "gguf/gguf_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "huggingface/config_keys.h"
#include "unit/gguf/written_gguf.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using test::HfFolder;
using testing::HasSubstr;

constexpr const char* kPattern = "x.attention.sliding_window_pattern";

GgufValue flag_list(const std::string& bytes) {
  GgufValue list = GgufValue::bytes(bytes);
  list.element = GgufKind::kBool;
  return list;
}

// Of a model of six layers with a window.
ModelConfig pattern_read(const GgufDescription& description) {
  ModelConfig model;
  model.layers = 6;
  model.window_before = 8;
  read_gguf_pattern(GgufKeys(description, "the file"), 4, model);
  return model;
}

ModelConfig pattern_read(const GgufValue& pattern) {
  return pattern_read({.architecture = "x", .entries = {{kPattern, pattern}}});
}

TEST(GgufWindow, IsOfLayersThatANumberOrAListOfFlagsNames) {
  EXPECT_EQ(pattern_read(GgufDescription{.architecture = "x"}).full_attention_every, 4);
  EXPECT_EQ(pattern_read(GgufValue::u32(3)).full_attention_every, 3);
  EXPECT_EQ(pattern_read(GgufValue::u32(0)).full_attention_every, 0);
  EXPECT_EQ(pattern_read(flag_list({1, 0, 1, 0, 1, 0})).full_attention_every, 2);
  EXPECT_EQ(pattern_read(flag_list({1, 1, 1, 0, 1, 1})).full_attention_every, 4);
  EXPECT_EQ(pattern_read(flag_list({1, 1, 1, 1, 1, 1})).full_attention_every, 0);
  EXPECT_EQ(pattern_read(GgufValue::numbers(std::vector<std::int32_t>{1, 1, 0, 1, 1, 0}))
                .full_attention_every,
            3);
  EXPECT_EQ(pattern_read(flag_list({1, 1, 0, 1, 1, 0})).window_before, 8);
  EXPECT_EQ(pattern_read(flag_list({0, 0, 0, 0, 0, 0})).window_before, std::nullopt);
}

TEST(GgufWindow, OfOtherLayersIsRefused) {
  const auto refused = [](const GgufValue& pattern) {
    return message_of(Fault::kData, [&] { pattern_read(pattern); });
  };
  EXPECT_THAT(refused(flag_list({0, 1, 1, 0, 1, 1})),
              HasSubstr("the file: x.attention.sliding_window_pattern: got a list, wanted layers "
                        "without the window in equal distances"));
  EXPECT_THAT(refused(flag_list({1, 0})), HasSubstr("got a list, wanted a flag for each layer"));
  EXPECT_THAT(refused(GgufValue::string("every other")),
              HasSubstr("got \"every other\", wanted an integer from 0 on, below 2^31"));
}

// llama.cpp needs the key in files of gpt-oss; a window as long as the longest text is none.
TEST(GgufWindow, OfGptOssIsAlwaysInAFile) {
  HfFolder folder("gpt-oss");
  folder.edit_config([](Json& config) {
    config["swiglu_limit"] = 7.0;
    config["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  });
  test::GgufWorkshop files;
  const GgufSource source(files.write(folder.path()));
  EXPECT_EQ(source.file().header().find("gpt-oss.attention.sliding_window")->integer(), 128);
  EXPECT_EQ(source.model().window_before, std::nullopt);
  folder.edit_config([](Json& config) { config["attention_bias"] = false; });
  std::erase_if(folder.tensors, [](const auto& one) {
    return one.first.find("self_attn") != std::string::npos && one.first.ends_with(".bias");
  });
  folder.write();
  EXPECT_THAT(message_of(Fault::kData, [&] { files.write(folder.path()); }),
              HasSubstr("as \"gpt-oss\": llama.cpp has a bias of attention's output projection "
                        "there"));
}

// Layers of OLMo 3 with a window turn by the angles without scaling, which no key says.
TEST(GgufWindow, OfOlmo3TurnsByAnglesWithoutScaling) {
  test::GgufWorkshop files;
  const GgufSource source(files.write(test::golden_folder("olmo3")));
  EXPECT_EQ(source.model().local_rotary_base, source.model().rotary_base);
  EXPECT_EQ(source.model().full_attention_every, 2);
  HfFolder folder("olmo3");
  folder.edit_config(
      [](Json& config) { config["rope_parameters"]["sliding_attention"]["rope_theta"] = 500.0; });
  EXPECT_THAT(message_of(Fault::kData, [&] { files.write(folder.path()); }),
              HasSubstr("as \"olmo2\": there is no word for its rotary positions"));
}

// llama.cpp knows EXAONE 4 with a window by its layers, and that those without it have no
// positions.
TEST(GgufWindow, OfExaone4IsThatOfItsLayers) {
  ModelConfig model = HfSource(test::golden_folder("exaone4")).model();
  EXPECT_THAT(message_of(Fault::kData, [&] { describe_gguf(model, "exaone4", "x"); }),
              HasSubstr("as \"exaone4\": there is no word for its layers without positions"));
  model.layers = 64;
  const GgufDescription description = describe_gguf(model, "exaone4", "x");
  EXPECT_EQ(description.architecture, "exaone4");
  EXPECT_EQ(model_difference(model_in_gguf(model), gguf_model(description, "x")), "");
  model.layers = 2;
  model.window_before.reset();
  model.full_attention_every = model.no_rotary_every = 0;
  EXPECT_EQ(describe_gguf(model, "exaone4", "x").architecture, "exaone4");
}

}  // namespace
}  // namespace piton
