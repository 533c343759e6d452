// Reads files of the PyPI package, refuses what it refuses, and reads back files that Piton writes.
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "support/compare.h"
#include "support/errors.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "support/tensors.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(PITON_SOURCE_DIR) / "tests/golden/safetensors";
const fs::path kSamples = fs::path(PITON_SOURCE_DIR) / "tests/golden/safetensors/samples";

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  if (hex == "-" || hex == "nested") return bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<std::byte> file_of(const std::string& header, std::size_t data_bytes) {
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

// Of a file in memory.
SafetensorsHeader parse_whole(std::span<const std::byte> file, const std::string& where) {
  return parse_safetensors(file, static_cast<std::int64_t>(file.size()), where);
}

TEST(Safetensors, ReadsEveryTypeThatThePackageWrites) {
  const SafetensorsFile file(kGolden / "mixed.safetensors");
  EXPECT_THAT(file.header().metadata.at("made by"), StartsWith("safetensors "));
  const std::map<std::string, std::pair<DType, Shape>> expected = {
      {"F64", {DType::kF64, {2, 3}}},    {"F32", {DType::kF32, {5}}},
      {"F16", {DType::kF16, {3, 1, 2}}}, {"BF16", {DType::kBF16, {4, 2}}},
      {"I64", {DType::kI64, {}}},        {"I32", {DType::kI32, {0, 7}}},
      {"U8", {DType::kU8, {1}}}};
  EXPECT_EQ(file.entries().size(), expected.size());
  for (const auto& [name, type] : expected) {
    const Tensor tensor = file.tensor(name + " \u00e9\"x");
    EXPECT_EQ(tensor.dtype(), type.first) << name;
    EXPECT_EQ(tensor.shape(), type.second) << name;
    const bool whole = name[0] == 'I' || name[0] == 'U';
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const double value = static_cast<double>(i);
      EXPECT_EQ(test::value_at(tensor, i), whole ? value : value / 8 - 1) << name << " " << i;
    }
  }
}

TEST(Safetensors, ReadsTheSamplesOfTheEcosystem) {
  const SafetensorsFile ints(kSamples / "tensor-1d-int32.safetensors");
  EXPECT_THAT(test::values(ints.tensor("embedding")), ElementsAre(1, 2, 3));
  int files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSamples)) {
    if (entry.path().extension() != ".safetensors") continue;
    const SafetensorsFile file(entry.path());
    ASSERT_EQ(file.entries().size(), 1U);
    const Tensor tensor = file.tensor(file.entries()[0].name);
    // "tensor-3d-float32": the name says how many dims and which type.
    const std::string stem = entry.path().stem().string();
    EXPECT_EQ(tensor.ndim(), stem[7] - '0') << stem;
    EXPECT_EQ(std::string(name(tensor.dtype())).back(), stem.back()) << stem;
    ++files;
  }
  EXPECT_EQ(files, 4);
}

TEST(Safetensors, JudgesFilesAsThePackageDoesButIsStricterInFourWays) {
  // What the format's description forbids and the package lets pass.
  const std::set<std::string> stricter = {"spaces before the header", "a name twice",
                                          "a metadata key twice", "an unknown field"};
  std::ifstream verdicts(kGolden / "verdicts.txt");
  std::string line;
  int judged = 0;
  while (std::getline(verdicts, line)) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string verdict, hex, what;
    words >> verdict >> hex;
    std::getline(words >> std::ws, what);
    std::vector<std::byte> bytes = from_hex(hex);
    if (hex == "nested") {
      std::string nested;
      for (int i = 0; i < 10000; ++i) nested += "{\"a\":";
      bytes = file_of(nested + "1" + std::string(10000, '}'), 0);
    }
    bool accepted = true;
    try {
      parse_whole(bytes, "x");
    } catch (const Error& error) {
      accepted = false;
      EXPECT_EQ(error.fault(), Fault::kData);
      EXPECT_THAT(error.what(), StartsWith("x: not a valid safetensors file: "));
    }
    EXPECT_EQ(accepted, verdict == "accepts" && !stricter.contains(what)) << what;
    ++judged;
  }
  EXPECT_GT(judged, 50);
}

TEST(Safetensors, SaysWhichTensorIsWrongAndHow) {
  const auto refused = [](const std::string& header, std::size_t data_bytes) {
    return message_of(Fault::kData,
                      [&] { parse_whole(file_of(header, data_bytes), "w.safetensors"); });
  };
  EXPECT_EQ(
      refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
      "w.safetensors: not a valid safetensors file: tensor \"a\" is F32 [2], 8 bytes, but its "
      "data_offsets hold 4; is the copy complete?");
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                          "b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                      12),
              HasSubstr("tensor \"b\" begins at byte 8, the one before it ends at 4: a hole"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3),
              HasSubstr("tensor \"a\" has data_offsets [0, 4], the data has 3 bytes"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{}})", 4),
              HasSubstr("the name \"a\" appears twice"));
  EXPECT_THAT(refused(R"({"a":{"dtype":"F32","shape":[1,-1],"data_offsets":[0,4]}})", 4),
              HasSubstr("tensor \"a\": its shape holds the number -1"));
  EXPECT_THAT(refused(R"({"a":[1]})", 0), HasSubstr("\"a\" is a list, wanted an object"));
  EXPECT_THAT(refused("{\"a\":", 0), HasSubstr("its header is not JSON at byte "));
  EXPECT_THAT(message_of(Fault::kData, [] { parse_whole({}, "w"); }),
              HasSubstr("got 0 bytes, wanted at least 8"));
}

TEST(Safetensors, NamesTheNearestTensorWhereOneIsMissingAndTheTypeWhereItIsUnknown) {
  const TempFolder folder;
  write_safetensors(folder / "a.safetensors", {{"model.weight", host_tensor(DType::kF32, {2})}});
  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_THAT(message_of(Fault::kData, [&] { file.tensor("model.wieght"); }),
              HasSubstr("did you mean \"model.weight\""));
  SafetensorsWriter writer(folder / "b.safetensors",
                           {{.name = "x", .dtype = "F8_E4M3", .shape = {3}}});
  writer.append(std::vector<std::byte>(3));
  writer.commit();
  EXPECT_THAT(
      message_of(Fault::kData, [&] { SafetensorsFile(folder / "b.safetensors").tensor("x"); }),
      HasSubstr("cannot use F8_E4M3 [3]"));
}

TEST(Safetensors, ReadsBackWhatItWroteAlignedAndWithItsMetadata) {
  const TempFolder folder;
  test::TensorSource source(5);
  std::map<std::string, Tensor> tensors = {
      {"b", source.normal(DType::kBF16, {3, 5})},
      {"a", source.normal(DType::kF32, {7})},
      {"scalar", source.normal(DType::kF64, {})},
      {"none", host_tensor(DType::kI64, {4, 0})},
      {"bytes", source.integers({5}, 0, 255, DType::kU8)},
      {"\"quoted\"\n\u7d05\u6a13", source.normal(DType::kF16, {2, 1, 3})}};
  write_safetensors(folder / "t.safetensors", tensors, {{"format", "pt"}, {"note", "a \"b\" \\"}});
  const SafetensorsFile file(folder / "t.safetensors");
  EXPECT_EQ(file.header().metadata.at("note"), "a \"b\" \\");
  EXPECT_EQ(file.header().data_begin % 64, 0);
  for (const SafetensorsEntry& entry : file.entries()) {
    EXPECT_EQ(entry.begin % size_bytes(*dtype_of_safetensors(entry.dtype)), 0) << entry.name;
  }
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors)
    EXPECT_TRUE(test::bit_equal(file.tensor(name), tensor)) << name;
}

TEST(Safetensors, RefusesOrSurvivesEveryFlippedByteOfAHeader) {
  std::vector<std::byte> whole =
      file_of(R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
              R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}}   )",
              14);
  std::mt19937 random(11);
  for (int round = 0; round < 20000 / test::one_of(5); ++round) {
    std::vector<std::byte> bytes = whole;
    const int flips = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < flips; ++i)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    try {
      const SafetensorsHeader header = parse_whole(bytes, "x");
      std::int64_t at = 0;
      for (const SafetensorsEntry& entry : header.entries) {
        ASSERT_EQ(entry.begin, at);
        at = entry.end;
      }
      ASSERT_EQ(header.data_begin + at, static_cast<std::int64_t>(bytes.size()));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace piton
