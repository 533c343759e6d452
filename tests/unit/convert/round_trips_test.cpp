// Every family from its Hugging Face folder through Megatron's divisions and back: each tensor of
// the files has the name, type, shape and bytes that it had. What Megatron's arguments have no
// words for is refused in one line that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/convert.h"
#include "huggingface/hf_source.h"
#include "megatron/megatron_source.h"
#include "support/errors.h"
#include "support/family_folder.h"
#include "unit/convert/one_machine.h"
#include "unit/convert/same_tensors.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class RoundTrip : public testing::Test {
 protected:
  fs::path folder_of(const std::string& family, const std::function<void(Json&)>& edit = {}) {
    const fs::path folder = dir_ / fmt::format("{}-{}", family, next_++);
    test::write_family_folder(folder, family, edit);
    return folder;
  }

  fs::path converted(const fs::path& load, const std::string& to,
                     const std::function<void(ConvertOptions&)>& set = {}) {
    const fs::path save = dir_ / fmt::format("{}-{}", to, next_++);
    ConvertOptions options{.load = load.string(), .save = save.string(), .save_model_type = to};
    if (set) set(options);
    SilentProgress silent;
    report_ = convert(one_.machine, options, silent);
    EXPECT_TRUE(report_.verified && report_.verified->equal());
    return save;
  }

  static void expect_same_files(const fs::path& a, const fs::path& b) {
    test::expect_same_tensors(a, b);
    EXPECT_EQ(HfSource(a).model(), HfSource(b).model());
    EXPECT_EQ(hf_family(HfSource(a).config()).model_types,
              hf_family(HfSource(b).config()).model_types);
  }

  void goes_round(const fs::path& source) {
    for (const char* tree : {"legacy", "local", "transformer_engine"}) {
      SCOPED_TRACE(fmt::format("{} {}", source.filename().string(), tree));
      fs::path at = source;
      for (const auto& [tensor, pipeline, stage] :
           {std::array{2, 2, 0}, std::array{4, 1, 0}, std::array{2, 2, 1}, std::array{1, 1, 0}}) {
        at = converted(at, "mg", [&](ConvertOptions& o) {
          o.tensor = tensor;
          o.pipeline = pipeline;
          o.layers_of_virtual_stage = stage;
          o.core = std::string(tree) != "legacy";
          if (o.core) o.core_layers = tree;
          o.vocabulary_multiple = 16;
        });
        const MegatronSource megatron(at);
        EXPECT_EQ(megatron.layout().tensor, tensor);
        EXPECT_EQ(megatron.layout().pipeline, pipeline);
        EXPECT_EQ(megatron.layout().chunks, stage == 0 ? 1 : 2);
      }
      expect_same_files(source, converted(at, "hf"));
    }
  }

  // Tensors of torch_dist are whole.
  void goes_through_torch_dist(const fs::path& source) {
    SCOPED_TRACE(source.filename().string());
    const fs::path there = converted(source, "mg", [](ConvertOptions& o) {
      o.checkpoint_format = "torch_dist";
      o.tensor = 2;
    });
    expect_same_files(source, converted(there, "hf"));
  }

  std::string refusal(const std::string& family, const std::function<void(Json&)>& edit = {}) {
    const fs::path source = folder_of(family, edit);
    const std::string line = message_of(Fault::kData, [&] { converted(source, "mg"); });
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    EXPECT_FALSE(fs::exists(dir_ / fmt::format("mg-{}", next_ - 1)));
    return line;
  }

  test::OneMachine one_;
  ConvertReport report_;
  TempFolder dir_;
  int next_ = 0;
};

TEST_F(RoundTrip, OfEveryFamilyThroughMegatronGivesTheSameBytes) {
  for (const char* family :
       {"gpt2", "llama", "llama3", "bloom", "baichuan", "baichuan-13b", "baichuan2", "internlm",
        "internlm2", "aquila", "qwen2", "qwen3", "stablelm"}) {
    const fs::path source = folder_of(family);
    goes_round(source);
    if (std::string(family) != "bloom") goes_through_torch_dist(source);
  }
}

// Their published configurations without a window.
TEST_F(RoundTrip, OfFamiliesWhoseWindowIsOffGivesTheSameBytes) {
  for (const char* family : {"mistral", "phi3"})
    goes_round(folder_of(family, [](Json& config) { config["sliding_window"] = nullptr; }));
}

TEST_F(RoundTrip, KeepsTheOtherHead) {
  for (const char* family : {"gpt2", "llama"}) {
    goes_round(folder_of(family, [](Json& config) {
      config["tie_word_embeddings"] = !config["tie_word_embeddings"].get<bool>();
    }));
  }
}

// Published models of InternLM have it.
TEST_F(RoundTrip, KeepsDynamicRotaryScaling) {
  const auto dynamic = [](Json& config) {
    config["rotary"] = {{"base", 20000}, {"type", "dynamic"}};
  };
  goes_round(folder_of("internlm", dynamic));
  goes_round(folder_of("internlm2", [](Json& config) {
    config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  }));
  converted(folder_of("internlm", dynamic), "mg");
  EXPECT_THAT(report_.notes, testing::Contains(HasSubstr("has dynamic rotary scaling, which "
                                                         "Megatron-LM does not know")));
  converted(folder_of("baichuan2"), "mg");
  EXPECT_THAT(report_.notes, testing::Contains(HasSubstr("has a normalized head, which")));
  converted(folder_of("llama3"), "mg");
  EXPECT_THAT(report_.notes, testing::IsEmpty());
}

TEST_F(RoundTrip, ThatMegatronHasNoWordsForIsRefusedByName) {
  const std::string end = " cannot be expressed in the format mg; convert it to another";
  EXPECT_THAT(refusal("mistral"), HasSubstr(": its attention window" + end));
  EXPECT_THAT(refusal("phi3"), HasSubstr(": its attention window" + end));
  EXPECT_THAT(refusal("gemma2"), HasSubstr(": its activation" + end));
  EXPECT_THAT(refusal("gemma3"), HasSubstr(": its activation" + end));
  EXPECT_THAT(refusal("llama",
                      [](Json& config) {
                        config["rope_parameters"] = {{"rope_type", "yarn"},
                                                     {"rope_theta", 1e4},
                                                     {"factor", 4.0},
                                                     {"original_max_position_embeddings", 32}};
                      }),
              HasSubstr(": its rotary positions" + end));
  EXPECT_THAT(refusal("qwen2", [](Json& config) { config["hidden_act"] = "gelu"; }),
              HasSubstr(": its activation" + end));
}

}  // namespace
}  // namespace piton
