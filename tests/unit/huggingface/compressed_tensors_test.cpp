// Matrices of whole numbers in Hugging Face folders: values of the library compressed-tensors
// (tests/golden/compressed_tensors, tools/oracle/compressed_tensors_files.py), and an error that
// names the problem for what is not read.
#include "huggingface/files/compressed_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "base/json.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;

fs::path golden() { return fs::path(PITON_SOURCE_DIR) / "tests/golden/compressed_tensors"; }

HfConfig config_of(const std::string& name, const std::function<void(Json&)>& edit = {}) {
  auto config = Json::parse(read_text_file(golden() / (name + ".json")));
  if (edit) edit(config["quantization_config"]);
  return {config.dump(), "config.json"};
}

const std::vector<std::string> kCases = {
    "int4_group",        "int4_channel_zeros", "int8_group_zeros",        "int8_tensor",
    "int8_tensor_zeros", "int8_channel_plain", "int8_channel_plain_zeros"};

class CompressedTensors : public testing::TestWithParam<std::string> {};

TEST_P(CompressedTensors, HaveTheValuesOfTheLibrary) {
  const std::optional<CompressedScheme> scheme = compressed_scheme(config_of(GetParam()));
  ASSERT_TRUE(scheme);
  const HfTensorFiles files(golden(), GetParam() + ".safetensors");
  std::map<std::string, HfTensor> named = files.tensors();
  const auto matrices = take_compressed(*scheme, named);
  ASSERT_EQ(matrices.size(), 1);
  EXPECT_EQ(named.size(), 1);  // "values"
  const CompressedMatrix& matrix = matrices.at("m.weight");
  EXPECT_EQ(matrix.rows, 11);
  EXPECT_EQ(matrix.columns, 24);
  const SafetensorsFile file(golden() / (GetParam() + ".safetensors"));
  const Tensor wanted = file.tensor("values");
  const CodedRowBuffer buffer(*matrix.format(), 24);
  std::vector<float> values(24);
  const CodedRowBuffer half(*matrix.format(), 16);
  std::vector<float> right(16);
  for (std::int64_t row = 0; row < 11; ++row) {
    matrix.read_codes({row, 0, 24}, buffer.row());
    integer_values(*matrix.format(), buffer.row(), values);
    for (std::int64_t i = 0; i < 24; ++i) {
      ASSERT_EQ(values[static_cast<std::size_t>(i)], wanted.data<float>()[row * 24 + i])
          << row << ", " << i;
    }
    // A part of the row, as a tensor rank has it.
    matrix.read_codes({row, 8, 16}, half.row());
    integer_values(*matrix.format(), half.row(), right);
    EXPECT_TRUE(std::equal(right.begin(), right.end(), values.begin() + 8));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CompressedTensors, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param; });

TEST(CompressedScheme, IsNullWithoutTheKey) {
  EXPECT_FALSE(compressed_scheme(HfConfig("{}", "config.json")));
  EXPECT_FALSE(compressed_scheme(HfConfig(R"({"quantization_config": null})", "config.json")));
}

TEST(CompressedScheme, ThatPitonDoesNotComputeIsRefused) {
  const auto refusal = [](const std::function<void(Json&)>& edit) {
    return message_of(Fault::kData, [&] { compressed_scheme(config_of("int4_group", edit)); });
  };
  const auto weights = [](Json& config) -> Json& {
    return config["config_groups"]["group_0"]["weights"];
  };
  EXPECT_THAT(refusal([](Json& c) { c["quant_method"] = "gptq"; }),
              HasSubstr("config.json: quantization_config.quant_method: got \"gptq\", wanted "
                        "compressed-tensors"));
  EXPECT_THAT(refusal([](Json& c) { c["format"] = "nvfp4-pack-quantized"; }),
              HasSubstr("quantization_config.format: got"));
  EXPECT_THAT(
      refusal([](Json& c) { c["config_groups"]["group_1"] = c["config_groups"]["group_0"]; }),
      HasSubstr("config_groups: got"));
  EXPECT_THAT(refusal([](Json& c) {
                c["kv_cache_scheme"] = {{"num_bits", 8}};
              }),
              HasSubstr("kv_cache_scheme: got"));
  EXPECT_THAT(refusal([](Json& c) {
                c["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}};
              }),
              HasSubstr("input_activations: got {\"num_bits\":8}, wanted null"));
  EXPECT_THAT(refusal([&](Json& c) { weights(c)["num_bits"] = 3; }),
              HasSubstr("weights.num_bits: got 3, wanted 4 or 8"));
  EXPECT_THAT(refusal([&](Json& c) { weights(c)["type"] = "float"; }),
              HasSubstr("weights.type: got \"float\", wanted int"));
  EXPECT_THAT(refusal([&](Json& c) { weights(c)["dynamic"] = true; }),
              HasSubstr("weights.dynamic: got true, wanted false"));
  EXPECT_THAT(refusal([&](Json& c) { weights(c)["strategy"] = "block"; }),
              HasSubstr("weights.strategy: got \"block\", wanted tensor, channel or group"));
  EXPECT_THAT(refusal([&](Json& c) { weights(c)["group_size"] = 7; }),
              HasSubstr("weights.group_size: got 7, wanted an even number"));
  EXPECT_THAT(refusal([&](Json& c) { weights(c)["group_size"] = -1; }),
              HasSubstr("weights.group_size: got -1"));
}

class DamagedMatrix : public testing::Test {
 protected:
  DamagedMatrix() {
    const SafetensorsFile file(golden() / "int4_group.safetensors");
    for (const SafetensorsEntry& entry : file.entries()) {
      if (entry.name != "values") tensors_[entry.name] = file.tensor(entry.name);
    }
  }
  // Of reading all rows.
  std::string refusal() {
    write_safetensors(dir_ / "model.safetensors", tensors_);
    return message_of(Fault::kData, [&] {
      const HfTensorFiles files(dir_.path());
      std::map<std::string, HfTensor> named = files.tensors();
      const auto matrices = take_compressed(*compressed_scheme(config_of("int4_group")), named);
      const CompressedMatrix& matrix = matrices.at("m.weight");
      const CodedRowBuffer buffer(*matrix.format(), matrix.columns);
      for (std::int64_t row = 0; row < matrix.rows; ++row)
        matrix.read_codes({row, 0, matrix.columns}, buffer.row());
    });
  }

  std::map<std::string, Tensor> tensors_;
  TempFolder dir_;
};

TEST_F(DamagedMatrix, IsNamed) {
  const std::map<std::string, Tensor> whole = tensors_;
  tensors_.erase("m.weight_shape");
  EXPECT_THAT(refusal(), HasSubstr("m.weight_shape is missing; is the download complete?"));

  tensors_ = whole;
  tensors_["m.weight_packed"] = host_tensor(DType::kI32, {11, 2});
  EXPECT_THAT(refusal(), HasSubstr("m.weight_packed is I32 [11, 2], wanted I32 [11, 3]"));

  tensors_ = whole;
  tensors_["m.weight_scale"] = host_tensor(DType::kF32, {11, 1});
  EXPECT_THAT(refusal(),
              HasSubstr("m.weight_scale is F32 [11, 1], wanted F32, BF16 or F16 [11, 3]"));

  tensors_ = whole;
  tensors_["m.weight_g_idx"] = host_tensor(DType::kI32, {24});
  EXPECT_THAT(refusal(), HasSubstr("m.weight_g_idx: groups of columns in another order"));

  tensors_ = whole;
  const Tensor shape = host_tensor(DType::kI64, {2});
  shape.data<std::int64_t>()[0] = 11;
  shape.data<std::int64_t>()[1] = -24;
  tensors_["m.weight_shape"] = shape;
  EXPECT_THAT(refusal(), HasSubstr("m.weight_shape says -24, wanted sizes from 1 on"));

  for (const float bad : {0.0F, -0.5F, std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    tensors_ = whole;
    const Tensor scales = host_tensor(DType::kF32, {11, 3});
    for (int i = 0; i < 33; ++i) scales.data<float>()[i] = i == 17 ? bad : 1.0F;
    tensors_["m.weight_scale"] = scales;
    EXPECT_THAT(refusal(), HasSubstr("m.weight_scale: scale 2 of row 5 is"));
  }
}

}  // namespace
}  // namespace piton
