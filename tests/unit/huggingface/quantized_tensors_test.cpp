// Quantized matrices in Hugging Face folders: values of the libraries that write them
// (tests/golden/quantized, tools/oracle/quantized_files.py), and an error that names the problem
// for what is not read.
#include "huggingface/files/quantized_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "base/json.h"
#include "codes/integer_codes.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;

fs::path quantized_golden() { return fs::path(PITON_SOURCE_DIR) / "tests/golden/quantized"; }

HfConfig quantized_config(const std::string& name, const std::function<void(Json&)>& edit = {}) {
  auto config = Json::parse(read_text_file(quantized_golden() / (name + ".json")));
  if (edit) edit(config["quantization_config"]);
  return {config.dump(), "config.json"};
}

std::vector<std::string> quantized_cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(quantized_golden())) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

// What a test changes in the tensors of a file.
struct RawTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

class DamagedQuantized {
 public:
  explicit DamagedQuantized(std::string name) : name_(std::move(name)) {
    const SafetensorsFile file(quantized_golden() / (name_ + ".safetensors"));
    for (const SafetensorsEntry& entry : file.entries()) {
      if (entry.name == "values") continue;
      RawTensor& raw = tensors[entry.name];
      raw = {entry.dtype, entry.shape,
             std::vector<std::byte>(static_cast<std::size_t>(entry.bytes()))};
      file.file().read_at(file.offset(entry), raw.bytes);
    }
  }

  // Takes the matrix and reads all rows.
  void read(const std::function<void(Json&)>& edit = {}) const {
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, raw] : tensors)
      entries.push_back({.name = name, .dtype = raw.dtype, .shape = raw.shape});
    SafetensorsWriter writer(dir_ / "model.safetensors", entries);
    for (const auto& [name, raw] : tensors) writer.append(raw.bytes);
    writer.commit();
    const HfTensorFiles files(dir_.path());
    std::map<std::string, HfTensor> named = files.tensors();
    const QuantizedMatrices matrices = take_quantized(quantized_config(name_, edit), named);
    const QuantizedMatrix& matrix = *matrices.at("m.weight");
    std::vector<float> values(static_cast<std::size_t>(matrix.columns));
    for (std::int64_t row = 0; row < matrix.rows; ++row) matrix.read_values(row, values);
  }
  std::string refusal(const std::function<void(Json&)>& edit = {}) const {
    return message_of(Fault::kData, [&] { read(edit); });
  }

  std::map<std::string, RawTensor> tensors;

 private:
  std::string name_;
  TempFolder dir_;
};

class QuantizedTensors : public testing::TestWithParam<std::string> {};

TEST_P(QuantizedTensors, HaveTheValuesOfTheLibrary) {
  const SafetensorsFile file(quantized_golden() / (GetParam() + ".safetensors"));
  const Tensor wanted = file.tensor("values");
  const HfTensorFiles files(quantized_golden(), GetParam() + ".safetensors");
  std::map<std::string, HfTensor> named = files.tensors();
  check_quantization(quantized_config(GetParam()));
  const QuantizedMatrices matrices = take_quantized(quantized_config(GetParam()), named);
  ASSERT_EQ(matrices.size(), 1U);
  EXPECT_EQ(named.size(), 1U);  // "values"
  const QuantizedMatrix& matrix = *matrices.at("m.weight");
  ASSERT_EQ(Shape({matrix.rows, matrix.columns}), wanted.shape());
  std::vector<float> values(static_cast<std::size_t>(matrix.columns));
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    matrix.read_values(row, values);
    for (std::int64_t i = 0; i < matrix.columns; ++i) {
      ASSERT_EQ(values[static_cast<std::size_t>(i)], wanted.data<float>()[row * matrix.columns + i])
          << row << ", " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, QuantizedTensors, testing::ValuesIn(quantized_cases()),
                         [](const auto& info) { return info.param; });

TEST(QuantizedMethods, ThatPitonDoesNotReadAreNamed) {
  const auto refusal = [](const std::function<void(Json&)>& edit) {
    return message_of(Fault::kData,
                      [&] { check_quantization(quantized_config("fp8_blocks", edit)); });
  };
  EXPECT_THAT(refusal([](Json& c) { c["quant_method"] = "hqq"; }),
              HasSubstr("config.json: quantization_config.quant_method: got \"hqq\", wanted "));
  EXPECT_THAT(refusal([](Json& c) { c["weight_block_size"] = {128}; }),
              HasSubstr("weight_block_size: got [128], wanted two positive integers"));
  EXPECT_THAT(refusal([](Json& c) {
                c["weight_block_size"] = {0.5, 128};
              }),
              HasSubstr("wanted two positive integers"));
  EXPECT_THAT(refusal([](Json& c) { c["fmt"] = "e5m2"; }), HasSubstr("fmt: got \"e5m2\""));
  EXPECT_THAT(refusal([](Json& c) { c["scale_fmt"] = "fp4"; }), HasSubstr("scale_fmt: got"));
}

TEST(CompressedFloats, ThatPitonDoesNotReadAreNamed) {
  const auto refusal = [](const std::function<void(Json&)>& edit) {
    return message_of(Fault::kData,
                      [&] { check_quantization(quantized_config("float_block", edit)); });
  };
  const auto weights = [](Json& config) -> Json& {
    return config["config_groups"]["group_0"]["weights"];
  };
  EXPECT_THAT(refusal([](Json& c) { c["format"] = "nvfp4-pack-quantized"; }),
              HasSubstr("wanted float-quantized or naive-quantized"));
  EXPECT_THAT(refusal([&](Json& c) { weights(c)["num_bits"] = 4; }),
              HasSubstr("weights.num_bits: got 4, wanted 8"));
  EXPECT_THAT(refusal([&](Json& c) { weights(c)["strategy"] = "group"; }),
              HasSubstr("weights.strategy: got \"group\", wanted tensor, channel or block"));
  EXPECT_THAT(refusal([&](Json& c) { weights(c)["block_structure"] = nullptr; }),
              HasSubstr("weights.block_structure: got"));
}

TEST(Float8Tensors, ThatAreWrongAreNamed) {
  DamagedQuantized damaged("fp8_blocks");
  const auto whole = damaged.tensors;
  EXPECT_NO_THROW(damaged.read());
  damaged.tensors.erase("m.weight_scale_inv");
  EXPECT_THAT(damaged.refusal(),
              HasSubstr("m.weight_scale_inv is missing; is the download complete?"));

  damaged.tensors = whole;
  damaged.tensors.erase("m.weight");
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.weight is missing"));

  damaged.tensors = whole;
  damaged.tensors["m.weight_scale_inv"].shape = {9, 1};
  EXPECT_THAT(damaged.refusal(),
              HasSubstr("m.weight_scale_inv is F32 [9, 1], wanted F32, BF16 or F16 [3, 3]"));

  damaged.tensors = whole;
  damaged.tensors["m.weight"].shape = {288};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.weight is F8_E4M3 [288], wanted F8_E4M3 [out, in]"));

  damaged.tensors = whole;
  damaged.tensors["m.weight"].bytes[30] = std::byte{0xff};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.weight: number [1, 6] is"));

  damaged.tensors = whole;
  damaged.tensors["m.weight_scale_inv"].bytes[19] = std::byte{0x7f};  // of scale 4, an infinity
  damaged.tensors["m.weight_scale_inv"].bytes[18] = std::byte{0x80};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.weight_scale_inv: scale [1, 1] is"));
}

TEST(Float8Tensors, ScalesOfActivationsAreSkipped) {
  DamagedQuantized folder("fp8_tensor");
  folder.tensors["m.input_scale"] = {"F32", {}, std::vector<std::byte>(4)};
  EXPECT_NO_THROW(folder.read([](Json& c) { c["activation_scheme"] = "static"; }));
}

}  // namespace
}  // namespace piton
