// Folders of whole numbers made of a model, read back, and made of GPTQ codes: values are those of
// the codes, files go round with the bytes that they had.
#include "convert/coded_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "convert/convert.h"
#include "convert/layer_walk.h"
#include "huggingface/family.h"
#include "huggingface/hf_source.h"
#include "support/errors.h"
#include "support/family_folder.h"
#include "support/host_machine.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "unit/convert/same_tensors.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class QuantizedFolder : public testing::Test {
 protected:
  ConvertReport run(const fs::path& load, const fs::path& save,
                    const std::optional<CodedWeights>& coded = {}) {
    const ConvertOptions options{
        .load = load.string(), .save = save.string(), .save_model_type = "hf", .coded = coded};
    SilentProgress silent;
    return convert(one_.machine, options, silent);
  }
  fs::path folder_of(const std::string& family, const std::function<void(Json&)>& edit = {}) {
    const fs::path folder = dir_ / fmt::format("{}-{}", family, next_++);
    test::write_family_folder(folder, family, edit);
    return folder;
  }
  static std::vector<float> values(TensorSource& source, const CanonicalTensor& tensor) {
    std::vector<float> all(static_cast<std::size_t>(tensor.shape.elements()));
    source.read(tensor.name, whole_run(tensor.shape), DType::kF32,
                reinterpret_cast<std::byte*>(all.data()));
    return all;
  }

  test::HostMachine one_;
  TempFolder dir_;
  int next_ = 0;
};

std::vector<IntegerFormat> all_formats() {
  std::vector<IntegerFormat> formats;
  for (const int bits : {8, 4}) {
    for (const bool symmetric : {true, false}) {
      formats.push_back({.bits = bits, .whole_tensor = true, .symmetric = symmetric});
      formats.push_back({.bits = bits, .symmetric = symmetric});
      formats.push_back({.bits = bits, .group = 4, .symmetric = symmetric});
    }
  }
  return formats;
}

std::vector<IntegerFormat> some_formats() {
  return {{.bits = 4, .whole_tensor = true, .symmetric = false}, {.bits = 8, .group = 4}};
}

// Fused and interleaved matrices too. convert() itself compares values and logits with those of the
// codes.
TEST_F(QuantizedFolder, OfEveryFamilyHasTheCodesOfItsMatrices) {
  // By day without internlm2, whose matrices the next test codes in every format.
  const std::vector<const char*> families = {"llama", "bloom",  "internlm2",
                                             "phi3",  "gemma2", "qwen3"};
  for (const char* family : test::sampled(families, 2, 1)) {
    const fs::path source = folder_of(family);
    HfSource plain(source);
    const bool interleaved = std::string(family) == "internlm2";
    for (const IntegerFormat& format : interleaved ? all_formats() : some_formats()) {
      SCOPED_TRACE(fmt::format("{}, {} bits, group {}, tensor {}, symmetric {}", family,
                               format.bits, format.group, format.whole_tensor, format.symmetric));
      const fs::path made = dir_ / fmt::format("coded-{}", next_++);
      const ConvertReport report = run(source, made, CodedWeights{.format = format});
      ASSERT_TRUE(report.verified && report.verified->equal() && report.quantization);
      EXPECT_GT(report.quantization->largest_difference, 0);
      EXPECT_FALSE(fs::exists(made / "codes"));
      HfSource coded(made);
      EXPECT_EQ(coded.model(), plain.model());
      int matrices = 0;
      for (const CanonicalTensor& one : plain.tensors(TensorKind::kWeight)) {
        const auto before = values(plain, one);
        const auto after = values(coded, one);
        if (!is_coded_matrix(one)) {
          EXPECT_FALSE(coded.stored_format(one.name));
          EXPECT_EQ(before, after) << one.name;
          continue;
        }
        ++matrices;
        EXPECT_EQ(coded.stored_format(one.name), held_format(format)) << one.name;
        // Weights are within 1/8 of 0 (support/family_folder.h), scales are in bf16.
        const double step = 2 / 8.0 / (format.bits == 4 ? 15 : 254);
        double worst = 0;
        for (std::size_t i = 0; i < before.size(); ++i)
          worst = std::max(worst, std::abs(static_cast<double>(before[i]) - after[i]));
        EXPECT_LE(worst, 1.05 * step) << one.name;
        EXPECT_GT(worst, 0.05 * step) << one.name;
      }
      EXPECT_GT(matrices, 12);
    }
  }
}

TEST_F(QuantizedFolder, GoesRoundWithItsBytes) {
  const fs::path source = folder_of("internlm2");
  for (const IntegerFormat& format : all_formats()) {
    const fs::path made = dir_ / fmt::format("made-{}", next_++);
    run(source, made, CodedWeights{.format = format});
    HfSource coded(made);
    // Written again from what was read.
    IntegerFormat stored = format;
    stored.scale = DType::kBF16;
    const fs::path again = dir_ / fmt::format("again-{}", next_++);
    fs::create_directories(again);
    write_huggingface(again, coded,
                      {coded.model(), hf_family(coded.config()),
                       Json::parse(read_text_file(source / "config.json"))},
                      {.codes = stored});
    test::expect_same_tensors(made, again);
    EXPECT_EQ(Json::parse(read_text_file(made / "config.json")),
              Json::parse(read_text_file(again / "config.json")));
    // Back to full precision: the values of the codes, and no word of them in config.json.
    const fs::path whole = dir_ / fmt::format("whole-{}", next_++);
    EXPECT_TRUE(run(made, whole).verified->equal());
    EXPECT_FALSE(Json::parse(read_text_file(whole / "config.json")).contains(kQuantizationKey));
    HfSource expanded(whole);
    for (const CanonicalTensor& one : coded.tensors(TensorKind::kWeight))
      EXPECT_EQ(values(coded, one), values(expanded, one)) << one.name;
  }
}

// In the words of compressed-tensors.
TEST_F(QuantizedFolder, SaysHowItIsStored) {
  const fs::path made = dir_ / "made";
  run(folder_of("llama"), made, CodedWeights{.format = {.bits = 4, .group = 4}});
  const auto config = Json::parse(read_text_file(made / "config.json"))[kQuantizationKey];
  EXPECT_EQ(config["quant_method"], "compressed-tensors");
  EXPECT_EQ(config["format"], "pack-quantized");
  EXPECT_EQ(config["ignore"], Json::parse(R"(["lm_head"])"));
  EXPECT_EQ(config["config_groups"]["group_0"]["weights"],
            Json::parse(R"({"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group",
                            "group_size": 4, "dynamic": false})"));
}

TEST_F(QuantizedFolder, ThatCannotBeMadeIsRefused) {
  const fs::path made = dir_ / "made";
  EXPECT_THAT(
      message_of(Fault::kUsage,
                 [&] { run(folder_of("llama"), made, CodedWeights{.format = {.group = 7}}); }),
      HasSubstr("--group-size: 7 does not divide the "));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { run(folder_of("gpt2"), made, CodedWeights{}); }),
              HasSubstr("is stored transposed in Hugging Face folders"));
  EXPECT_FALSE(fs::exists(made));
}

TEST_F(QuantizedFolder, WhoseMatrixIsOfAnotherSizeIsRefused) {
  const fs::path made = dir_ / "made";
  run(folder_of("llama"), made, CodedWeights{.format = {.group = 4}});
  auto config = Json::parse(read_text_file(made / "config.json"));
  config["intermediate_size"] = 64;
  write_text_file(made / "config.json", config.dump());
  EXPECT_THAT(message_of(Fault::kData, [&] { HfSource source(made); }),
              HasSubstr("gate_proj.weight_packed is [60, 64], "));
}

// Mean square of the changes of logits on `samples`.
double change(const Machine& machine, const fs::path& before, const fs::path& after,
              const std::vector<std::vector<std::int32_t>>& samples) {
  Mesh mesh(machine.world, MeshSizes{});
  HfSource first(before), second(after);
  LayerWalk plain(machine, mesh, first.model(), samples);
  LayerWalk coded(machine, mesh, second.model(), samples);
  for (int layer = 0; layer < plain.chunks(); ++layer) {
    plain.run(layer, first);
    coded.run(layer, second);
  }
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t sample = 0; sample < samples.size(); ++sample) {
    for (std::size_t i = 0; i < plain.output(sample).size(); ++i, ++count) {
      const double one = static_cast<double>(plain.output(sample)[i]) - coded.output(sample)[i];
      sum += one * one;
    }
  }
  return sum / static_cast<double>(count);
}

// GPTQ on a model: the logits of the calibration text change less than with rounded weights. The
// text is bytes, which a ByteTokenizer reads.
TEST_F(QuantizedFolder, OfGptqIsNearerThanRounding) {
  const fs::path source = folder_of("llama", [](Json& config) { config["vocab_size"] = 300; });
  std::string text;
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 3000; ++i) {
    text += static_cast<char>('a' + i * i % 23);
    ids.push_back(text.back());
  }
  std::vector<std::vector<std::int32_t>> samples;
  for (std::size_t begin = 0; begin + 64 <= ids.size(); begin += 64)
    samples.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                         ids.begin() + static_cast<std::ptrdiff_t>(begin + 64));
  write_text_file(dir_ / "text.txt", text);
  for (const IntegerFormat& format :
       {IntegerFormat{.bits = 4}, IntegerFormat{.bits = 4, .group = 4, .symmetric = false}}) {
    CodedWeights coded{.format = format};
    const fs::path rounded = dir_ / fmt::format("r{}", next_++);
    run(source, rounded, coded);
    coded.gptq = true;
    coded.calibration = (dir_ / "text.txt").string();
    coded.tokenizer.type = "ByteTokenizer";
    coded.length = 64;
    const fs::path spread = dir_ / fmt::format("g{}", next_++);
    const ConvertReport report = run(source, spread, coded);
    ASSERT_TRUE(report.verified && report.verified->equal());
    EXPECT_FALSE(fs::exists(spread / "codes"));
    const double before = change(one_.machine, source, rounded, samples);
    EXPECT_LT(change(one_.machine, source, spread, samples), 0.8 * before);
  }
}

}  // namespace
}  // namespace piton
