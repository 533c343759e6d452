// Every family from its Hugging Face folder through Megatron's divisions and back: each tensor of
// the files has the name, type, shape and bytes that it had. What Megatron's arguments have no
// words for is refused in one line that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/philox.h"
#include "convert/convert.h"
#include "huggingface/hf_source.h"
#include "huggingface/hf_writer.h"
#include "model/canonical_tensors.h"
#include "support/errors.h"
#include "unit/convert/one_machine.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;

// Weights of any model, no two alike: in bf16 matrices, in fp32 all others.
class RandomWeights final : public TensorSource {
 public:
  explicit RandomWeights(const ModelConfig& model) {
    for (const CanonicalShape& one : canonical_tensors(model)) {
      const DType dtype = one.shape.ndim() > 1 ? DType::kBF16 : DType::kF32;
      tensors_[one.name] = {.name = one.name, .dtype = dtype, .shape = one.shape};
    }
  }

  std::string where() const override { return "random weights"; }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    std::vector<CanonicalTensor> all;
    if (kind != TensorKind::kWeight) return all;
    for (const auto& [name, tensor] : tensors_) all.push_back(tensor);
    return all;
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    const Shape& shape = tensors_.at(name).shape;
    const bool matrix = shape.ndim() > 1;
    const std::int64_t columns = matrix ? run.extent[1] : 1;
    for (std::int64_t i = run.begin; i < run.end; ++i, dst += size_bytes(dtype)) {
      const std::int64_t row = run.start[0] + i / columns;
      const std::int64_t at = matrix ? row * shape[1] + run.start[1] + i % columns : row;
      const auto number = static_cast<std::uint32_t>(at);
      const std::uint32_t bits = philox({number, 7}, {number, hash(name), 0, 0})[0];
      const float value = (static_cast<float>(bits >> 8) / (1 << 23) - 1) / 8;
      if (dtype == DType::kBF16) {
        const BFloat16 rounded = to_bfloat16(value);
        std::memcpy(dst, &rounded, sizeof rounded);
      } else {
        std::memcpy(dst, &value, sizeof value);
      }
    }
  }

 private:
  static std::uint32_t hash(const std::string& name) {
    return static_cast<std::uint32_t>(std::hash<std::string>{}(name));
  }
  std::map<std::string, CanonicalTensor> tensors_;
};

class RoundTrip : public testing::Test {
 protected:
  // The family's golden config.json with eight heads (in four groups where the family has groups)
  // and four layers, which every division below divides, and random weights.
  fs::path folder_of(const std::string& family, const std::function<void(Json&)>& edit = {}) {
    Json config = Json::parse(read_text_file(test::golden_folder(family) / "config.json"));
    const auto set = [&](std::initializer_list<const char*> names, std::int64_t value) {
      for (const char* name : names) {
        if (config.contains(name)) config[name] = value;
      }
    };
    set({"num_hidden_layers", "n_layer"}, 4);
    set({"hidden_size", "n_embd"}, 64);
    set({"num_attention_heads", "n_head"}, 8);
    set({"num_key_value_heads"}, 4);
    set({"intermediate_size", "n_inner"}, 60);
    if (config.contains("layer_types"))
      config["layer_types"] = std::vector<std::string>(4, "full_attention");
    if (config.contains("head_dim")) config["head_dim"] = 12;
    if (edit) edit(config);
    const fs::path folder = dir_ / fmt::format("{}-{}", family, next_++);
    fs::create_directory(folder);
    const HfConfig parsed(config.dump(), "config.json");
    const ModelConfig model = hf_model(parsed);
    RandomWeights weights(model);
    write_huggingface(folder, weights, model, hf_family(parsed), config);
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
    const HfTensorFiles first(a);
    const HfTensorFiles second(b);
    ASSERT_EQ(first.tensors().size(), second.tensors().size());
    for (const auto& [name, tensor] : first.tensors()) {
      const auto other = second.tensors().find(name);
      ASSERT_NE(other, second.tensors().end()) << name;
      EXPECT_EQ(tensor.dtype, other->second.dtype) << name;
      ASSERT_EQ(tensor.shape, other->second.shape) << name;
      std::int64_t bytes = torch_width(tensor.dtype);
      for (const std::int64_t size : tensor.shape) bytes *= size;
      EXPECT_EQ(hash_of_bytes(*tensor.file, tensor.offset, bytes),
                hash_of_bytes(*other->second.file, other->second.offset, bytes))
          << name;
    }
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
