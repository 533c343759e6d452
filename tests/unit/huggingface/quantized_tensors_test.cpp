// Quantized matrices in Hugging Face folders: values of the libraries that write them
// (tests/golden/quantized, tools/oracle/quantized_files.py), and an error that names the problem
// for what is not read.
#include "huggingface/files/quantized_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

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
  auto config = Json::parse(
      SafetensorsFile(quantized_golden() / (name + ".safetensors")).header().metadata.at("config"));
  if (edit) edit(config["quantization_config"]);
  return {config.dump(), "config.json"};
}

std::vector<std::string> quantized_cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(quantized_golden())) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().stem().string());
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

// The values of codes of a row, in fp32.
std::vector<float> code_values(const QuantizedMatrix& matrix, const StoredRow& part) {
  const CodeFormat format = *matrix.format();
  const CodedRowBuffer buffer(format, part.columns);
  matrix.read_codes(part, buffer.row());
  std::vector<float> values(static_cast<std::size_t>(part.columns));
  if (format.rule != Quantization::kNf4) {
    integer_values(format, buffer.row(), values);
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int byte = std::to_integer<int>(buffer.row().codes[i / 2]);
    float scale = 0;
    std::memcpy(&scale, buffer.row().scales + i / static_cast<std::size_t>(format.group) * 4, 4);
    values[i] = scale * kNf4Values[i % 2 == 0 ? byte & 15 : byte >> 4];
  }
  return values;
}

void expect_codes(const QuantizedMatrix& matrix, std::int64_t row,
                  const std::vector<float>& values) {
  EXPECT_EQ(code_values(matrix, {row, 0, matrix.columns}), values);
  // A part of the row, as a tensor rank has it.
  const std::int64_t half = matrix.columns / 2;
  const std::int64_t group = std::max<std::int64_t>(matrix.format()->group, 2);
  if (half % group != 0) return;
  EXPECT_EQ(code_values(matrix, {row, half, half}),
            std::vector<float>(values.begin() + half, values.end()));
}

const std::set<std::string> kValuesAlone = {
    "bnb_fp4",      "bnb_nf4_ragged", "bnb_nf4_wide",  "float_block", "float_channel",
    "float_tensor", "fp8_blocks",     "fp8_exponents", "fp8_half",    "fp8_ragged",
    "fp8_tensor",   "gptq_4_order",   "mxfp4"};

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
    const float* const of_library = wanted.data<float>() + row * matrix.columns;
    for (std::int64_t i = 0; i < matrix.columns; ++i) {
      const float value = values[static_cast<std::size_t>(i)];
      // The library multiplies a code of 8 bits by SCB first, then by 1 / 127.
      if (GetParam() == "bnb_int8")
        ASSERT_FLOAT_EQ(value, of_library[i]) << row << ", " << i;
      else
        ASSERT_EQ(value, of_library[i]) << row << ", " << i;
    }
    if (matrix.format()) expect_codes(matrix, row, values);
  }
  EXPECT_EQ(matrix.format().has_value(), !kValuesAlone.contains(GetParam()));
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

TEST(Mxfp4Tensors, ThatAreWrongAreNamed) {
  DamagedQuantized damaged("mxfp4");
  const auto whole = damaged.tensors;
  EXPECT_NO_THROW(damaged.read());
  for (const char* end : {"_blocks", "_scales"}) {
    damaged.tensors = whole;
    damaged.tensors.erase(std::string("m.weight") + end);
    EXPECT_THAT(damaged.refusal(),
                HasSubstr(fmt::format("m.weight{} is missing; is the download complete?", end)));
  }
  damaged.tensors = whole;
  damaged.tensors["m.weight_blocks"].shape = {2, 12, 16};
  EXPECT_THAT(
      damaged.refusal(),
      HasSubstr("m.weight_blocks is U8 [2, 12, 16], wanted U8 [experts, out, in / 32, 16]"));
  damaged.tensors = whole;
  damaged.tensors["m.weight_scales"].shape = {12, 2};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.weight_scales is U8 [12, 2], wanted U8 [2, 6, 2]"));
  damaged.tensors = whole;
  damaged.tensors["m.weight_scales"].bytes[5] = std::byte{255};
  EXPECT_THAT(damaged.refusal(),
              HasSubstr("m.weight_scales: scale 1 of row 2 is 255, wanted at most 254"));
}

TEST(BitsandbytesTensors, ThatAreWrongAreNamed) {
  DamagedQuantized damaged("bnb_nf4_nested");
  const auto whole = damaged.tensors;
  EXPECT_NO_THROW(damaged.read());
  for (const char* end : {"", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"}) {
    damaged.tensors = whole;
    damaged.tensors.erase(std::string("m.weight") + end);
    EXPECT_THAT(damaged.refusal(),
                HasSubstr(fmt::format("m.weight{} is missing; is the download complete?", end)));
  }
  damaged.tensors = whole;
  damaged.tensors["m.weight"].shape = {4800, 2};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.weight is U8 [4800, 2], wanted U8 [9600, 1]"));

  damaged.tensors = whole;
  damaged.tensors["m.weight.absmax"] = {"U8", {299}, std::vector<std::byte>(299)};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.weight.absmax is U8 [299], wanted U8 [300]"));

  damaged.tensors = whole;
  damaged.tensors["m.weight.nested_absmax"].bytes[3] = std::byte{0x7f};
  damaged.tensors["m.weight.nested_absmax"].bytes[2] = std::byte{0x80};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.weight.absmax: scale 0 is"));

  const std::string state = "m.weight.quant_state.bitsandbytes__nf4";
  const auto stated = [&](const std::string& text) {
    damaged.tensors = whole;
    const auto bytes = std::as_bytes(std::span(text));
    damaged.tensors[state] = {"U8", {std::ssize(bytes)}, {bytes.begin(), bytes.end()}};
    return damaged.refusal();
  };
  EXPECT_THAT(stated("{"), HasSubstr(state));
  EXPECT_THAT(stated(R"({"shape": [300]})"),
              HasSubstr(state + ": shape: got [300], wanted two positive integers"));
  EXPECT_THAT(stated(R"({"shape": [300, 64]})"), HasSubstr("blocksize: "));
  EXPECT_THAT(stated(R"({"shape": [300, 64], "blocksize": 64, "dtype": "int8"})"),
              HasSubstr("dtype: got \"int8\", wanted float32, float16 or bfloat16"));
}

TEST(BitsandbytesTensors, OfEightBitsThatAreWrongAreNamed) {
  DamagedQuantized damaged("bnb_int8");
  const auto whole = damaged.tensors;
  damaged.tensors["m.weight"].dtype = "U8";
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.weight is U8 [12, 24], wanted I8 [out, in]"));

  damaged.tensors = whole;
  damaged.tensors["m.SCB"] = {"F32", {11}, std::vector<std::byte>(44)};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.SCB is F32 [11], wanted F32 [12]"));

  damaged.tensors = whole;
  damaged.tensors["m.weight_format"].bytes[0] = std::byte{2};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.weight_format is 2, wanted 0: a matrix in rows"));
}

TEST(PackedColumns, ThatPitonDoesNotReadAreNamed) {
  const auto refusal = [](const std::string& name, const std::function<void(Json&)>& edit) {
    return message_of(Fault::kData, [&] { check_quantization(quantized_config(name, edit)); });
  };
  EXPECT_THAT(refusal("gptq_4", [](Json& c) { c["bits"] = 5; }),
              HasSubstr("quantization_config.bits: got 5, wanted 2, 3, 4 or 8"));
  EXPECT_THAT(refusal("gptq_4", [](Json& c) { c["group_size"] = 0; }),
              HasSubstr("group_size: got 0, wanted a positive integer, or -1"));
  EXPECT_THAT(refusal("gptq_4", [](Json& c) { c["checkpoint_format"] = "marlin"; }),
              HasSubstr("checkpoint_format: got \"marlin\", wanted gptq or gptq_v2"));
  EXPECT_THAT(refusal("awq", [](Json& c) { c["bits"] = 8; }), HasSubstr("bits: got 8, wanted 4"));
  EXPECT_THAT(refusal("awq", [](Json& c) { c["version"] = "gemv"; }),
              HasSubstr("version: got \"gemv\", wanted gemm"));
}

TEST(PackedColumns, ThatAreWrongAreNamed) {
  DamagedQuantized damaged("gptq_4");
  const auto whole = damaged.tensors;
  EXPECT_NO_THROW(damaged.read());
  for (const char* name : {"m.qzeros", "m.scales"}) {
    damaged.tensors = whole;
    damaged.tensors.erase(name);
    EXPECT_THAT(damaged.refusal(),
                HasSubstr(fmt::format("{} is missing; is the download complete?", name)));
  }
  damaged.tensors = whole;
  damaged.tensors["m.qweight"].shape = {256};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.qweight is I32 [256], wanted I32 [in 4 / 32, out]"));

  damaged.tensors = whole;
  damaged.tensors["m.scales"].shape = {32, 4};
  EXPECT_THAT(damaged.refusal(),
              HasSubstr("m.scales is F16 [32, 4], wanted F16, BF16 or F32 [4, 32]"));
  // Another size of groups than config.json says.
  damaged.tensors = whole;
  EXPECT_THAT(damaged.refusal([](Json& c) { c["group_size"] = 32; }),
              HasSubstr("m.scales is F16 [4, 32], wanted F16, BF16 or F32 [2, 32]"));

  damaged.tensors["m.qzeros"].shape = {2, 8};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.qzeros is I32 [2, 8], wanted I32 [4, 4]"));

  damaged.tensors = whole;
  damaged.tensors["m.g_idx"].bytes[4] = std::byte{4};
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.g_idx: the group of column 1 is 4, wanted 0 to 3"));

  damaged.tensors = whole;
  damaged.tensors["m.scales"].bytes[67] = std::byte{0x7c};  // of scale 33, not finite
  EXPECT_THAT(damaged.refusal(), HasSubstr("m.scales: scale [1, 1] is"));

  DamagedQuantized awq("awq");
  awq.tensors["m.qzeros"].shape = {3, 4};
  EXPECT_THAT(awq.refusal(), HasSubstr("m.qzeros is I32 [3, 4], wanted I32 [4, 3]"));
}

TEST(Float8Tensors, ScalesOfActivationsAreSkipped) {
  DamagedQuantized folder("fp8_tensor");
  folder.tensors["m.input_scale"] = {"F32", {}, std::vector<std::byte>(4)};
  EXPECT_NO_THROW(folder.read([](Json& c) { c["activation_scheme"] = "static"; }));
}

}  // namespace
}  // namespace piton
