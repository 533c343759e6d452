// Folders as they are published, which Transformers saves in another form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "huggingface/hf_source.h"
#include "support/errors.h"
#include "unit/huggingface/hf_folder.h"
#include "unit/huggingface/whole_tensor.h"

namespace piton {
namespace {

using test::HfFolder;
using test::whole;
using testing::HasSubstr;

// A model with a vision part has its language model under other names, next to other tensors.
TEST(PublishedFolder, ReadsTheLanguageModelOfOneWithVision) {
  const HfFolder plain("qwen3.5");
  HfFolder both("qwen3.5");
  both.edit_config([](nlohmann::ordered_json& config) {
    nlohmann::ordered_json text = config;
    text.erase("architectures");
    text.erase("tie_word_embeddings");
    config = {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
              {"model_type", "qwen3_5"},
              {"tie_word_embeddings", false},
              {"image_token_id", 7},
              {"text_config", std::move(text)},
              {"vision_config", {{"depth", 1}, {"hidden_size", 8}}}};
  });
  std::map<std::string, Tensor> named;
  for (const auto& [name, tensor] : plain.tensors) {
    const bool head = name == "lm_head.weight";
    named[head ? name : "model.language_model." + name.substr(6)] = tensor;
  }
  named["model.visual.blocks.0.norm1.weight"] = host_tensor(DType::kF32, {8});
  both.tensors = named;
  both.write();
  HfSource source(both.path());
  HfSource wanted(plain.path());
  EXPECT_EQ(source.model(), wanted.model());
  EXPECT_TRUE(source.config().is_language_part() && !wanted.config().is_language_part());
  EXPECT_EQ(source.config().word("model_type"), "qwen3_5_text");
  EXPECT_THAT(source.notes(), testing::ElementsAre(HasSubstr("without its vision part")));
  EXPECT_THAT(source.config().words("architectures"), testing::ElementsAre("Qwen3_5ForCausalLM"));
  for (const CanonicalTensor& one : wanted.tensors(TensorKind::kWeight))
    EXPECT_EQ(whole(source, one.name, one.shape), whole(wanted, one.name, one.shape)) << one.name;
  named.erase("model.language_model.norm.weight");
  both.tensors = named;
  both.write();
  EXPECT_THAT(message_of(Fault::kData, [&] { HfSource(both.path()); }),
              HasSubstr("model.norm.weight"));
}

// Qwen publishes the experts of Qwen 3.5 as two tensors of each layer, gates above ups.
TEST(PublishedFolder, ReadsExpertsThatAreStacked) {
  constexpr std::int64_t kExperts = 4, kWidth = 8, kHidden = 32;
  const HfFolder plain("qwen3.5-moe");
  HfFolder stacked("qwen3.5-moe");
  std::erase_if(stacked.tensors,
                [](const auto& one) { return one.first.find(".experts.") != std::string::npos; });
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = fmt::format("model.layers.{}.mlp.experts.", layer);
    const Tensor both = host_tensor(DType::kF32, {kExperts, 2 * kWidth, kHidden});
    const Tensor down = host_tensor(DType::kF32, {kExperts, kHidden, kWidth});
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      const auto copy = [&](const char* name, float* to) {
        const Tensor one = plain.tensors.at(fmt::format("{}{}.{}.weight", at, expert, name));
        std::copy_n(one.data<float>(), kWidth * kHidden, to);
      };
      copy("gate_proj", both.data<float>() + 2 * expert * kWidth * kHidden);
      copy("up_proj", both.data<float>() + (2 * expert + 1) * kWidth * kHidden);
      copy("down_proj", down.data<float>() + expert * kWidth * kHidden);
    }
    stacked.tensors[at + "gate_up_proj"] = both;
    stacked.tensors[at + "down_proj"] = down;
  }
  stacked.write();
  HfSource source(stacked.path());
  HfSource wanted(plain.path());
  for (const CanonicalTensor& one : wanted.tensors(TensorKind::kWeight))
    EXPECT_EQ(whole(source, one.name, one.shape), whole(wanted, one.name, one.shape)) << one.name;
  stacked.tensors.erase("model.layers.1.mlp.experts.down_proj");
  stacked.write();
  EXPECT_THAT(message_of(Fault::kData, [&] { HfSource(stacked.path()); }),
              HasSubstr("missing tensors (1): model.layers.1.mlp.experts.down_proj"));
}

}  // namespace
}  // namespace piton
