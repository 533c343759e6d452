// Blocks of quantized values against those of the `gguf` package
// (tests/golden/gguf/blocks.safetensors, tools/oracle/gguf_files.py), and of llama.cpp's own code
// (k_blocks.safetensors, tools/oracle/k_quants.py).
#include "gguf/blocks/ggml_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "checkpoint/safetensors.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

constexpr std::array kTypes = {GgmlType::kQ80, GgmlType::kQ40, GgmlType::kQ4K, GgmlType::kQ5K,
                               GgmlType::kQ6K};

std::filesystem::path blocks_of(GgmlType type) {
  return std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/gguf" /
         (block_values(type) == 256 ? "k_blocks.safetensors" : "blocks.safetensors");
}

std::vector<std::byte> encoded(GgmlType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() / static_cast<std::size_t>(block_values(type)) *
                               static_cast<std::size_t>(block_bytes(type)));
  encode_blocks(type, values, bytes.data(), "w");
  return bytes;
}

TEST(GgmlType, BlocksEqualThoseOfLlamaCppToTheBit) {
  for (const GgmlType type : kTypes) {
    const SafetensorsFile file(blocks_of(type));
    const Tensor values = file.tensor("values");
    const auto* begin = values.data<float>();
    const std::vector<float> x(begin, begin + values.elements());
    const std::string key(name(type));
    const Tensor blocks = file.tensor(key);
    const std::vector<std::byte> got = encoded(type, x);
    ASSERT_EQ(std::ssize(got), blocks.bytes());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], static_cast<const std::byte*>(blocks.raw())[i])
          << key << " byte " << i << " of block "
          << i / static_cast<std::size_t>(block_bytes(type));
    }
    const Tensor wanted = file.tensor(key + ".values");
    std::vector<float> decoded(x.size());
    decode_blocks(type, got.data(), std::ssize(x), decoded.data());
    EXPECT_EQ(std::memcmp(decoded.data(), wanted.raw(), decoded.size() * 4), 0) << key;
  }
}

TEST(GgmlType, CodesOfBlocksHaveTheirValuesToTheBit) {
  HostDevice device;
  Arena arena(device);
  for (const GgmlType type : kTypes) {
    const SafetensorsFile file(blocks_of(type));
    const std::string key(name(type));
    const Tensor wanted = file.tensor(key + ".values");
    const std::int64_t columns = wanted.elements();
    const WeightCodes codes = allocate_codes(code_format_of(type), 1, columns, arena);
    split_blocks(type, file.tensor(key).raw(), columns / block_values(type), row_of(codes, 0));
    const Tensor rows = host_tensor(DType::kF32, {1, columns});
    const auto stream = device.make_stream();
    ThreadPool pool(1);
    for (const auto& kernels : {make_reference_kernels(), make_cpu_kernels(pool)}) {
      kernels->run(ExpandWeight{.rows = rows, .codes = codes}, *stream);
      EXPECT_EQ(std::memcmp(rows.raw(), wanted.raw(), static_cast<std::size_t>(rows.bytes())), 0)
          << key;
    }
  }
}

TEST(GgmlType, WhatNoBlockHoldsIsRefused) {
  for (const GgmlType type : kTypes) {
    const auto count = static_cast<std::size_t>(block_values(type));
    for (const float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN(), 1e9F}) {
      std::vector<float> values(2 * count, 0.5F);
      values[40] = bad;
      EXPECT_THAT(message_of(Fault::kData, [&] { encoded(type, values); }),
                  HasSubstr("w: has values that are not finite, or too large"));
    }
    // As small as numbers get: zeros.
    std::vector<float> tiny(count, 1e-42F);
    std::vector<float> decoded(count, 1);
    decode_blocks(type, encoded(type, tiny).data(), std::ssize(tiny), decoded.data());
    for (const float value : decoded) EXPECT_EQ(value, 0);
  }
}

// Random bits, of tools/oracle/gguf_files.py.
TEST(GgmlType, ReadOnlyBlocksHaveTheValuesOfGgmlToTheBit) {
  const SafetensorsFile file(std::filesystem::path(PITON_SOURCE_DIR) /
                             "tests/golden/gguf/read_only_blocks.safetensors");
  for (const GgmlType type :
       {GgmlType::kQ41, GgmlType::kQ50, GgmlType::kQ51, GgmlType::kQ2K, GgmlType::kQ3K,
        GgmlType::kIq4Nl, GgmlType::kIq4Xs, GgmlType::kTq10, GgmlType::kTq20, GgmlType::kMxfp4}) {
    const std::string key(name(type));
    const Tensor blocks = file.tensor(key);
    const Tensor wanted = file.tensor(key + ".values");
    const std::int64_t count = wanted.elements();
    ASSERT_EQ(blocks.bytes(), count / block_values(type) * block_bytes(type)) << key;
    std::vector<float> values(static_cast<std::size_t>(count));
    decode_blocks(type, static_cast<const std::byte*>(blocks.raw()), count, values.data());
    const auto* numbers = wanted.data<float>();
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], numbers[i]) << key << " value " << i;
    EXPECT_FALSE(has_codes(type)) << key;
  }
}

TEST(GgmlType, OnesThatAreNotReadHaveNames) {
  EXPECT_EQ(ggml_type_name(16), "IQ2_XXS");
  EXPECT_EQ(ggml_type_name(8), "Q8_0");
  EXPECT_EQ(ggml_type_name(4000), "number 4000");
  EXPECT_FALSE(ggml_type(16));
}

}  // namespace
}  // namespace piton
