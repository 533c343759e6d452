// Quantization of rows: errors within half a step, the rules of each format, and NF4 against
// bitsandbytes (tests/golden/nf4.txt, tools/oracle/nf4.py).
#include "codes/code_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "codes/nested_scales.h"
#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kRows = 40;
constexpr std::int64_t kColumns = 512;

// As in tools/oracle/nf4.py.
std::vector<float> drawn_values() {
  std::vector<float> values;
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    state = (state * 1103515245U + 12345U) % 2147483648U;
    values.push_back((static_cast<float>((state >> 8) % 65536) / 32768 - 1) *
                     static_cast<float>(1 + i / 64 % 7));
  }
  return values;
}

class CodeFormatTest : public testing::Test {
 protected:
  WeightCodes encode(const CodeFormat& format, const std::vector<float>& values,
                     std::int64_t columns) {
    const auto rows = std::ssize(values) / columns;
    WeightCodes codes = allocate_codes(format, rows, columns, arena_);
    for (std::int64_t row = 0; row < rows; ++row) {
      encode_row(format,
                 std::span(values).subspan(static_cast<std::size_t>(row * columns),
                                           static_cast<std::size_t>(columns)),
                 row_of(codes, row), "w");
    }
    return codes;
  }
  std::vector<float> expanded(const WeightCodes& codes, std::int64_t columns) {
    const Tensor rows = host_tensor(DType::kF32, {codes.codes.dim(0), columns});
    HostDevice device;
    const auto stream = device.make_stream();
    make_reference_kernels()->run(ExpandWeight{.rows = rows, .codes = codes}, *stream);
    const auto* begin = rows.data<float>();
    return {begin, begin + rows.elements()};
  }

  HostDevice device_;
  Arena arena_{device_, 1 << 20};
};

TEST_F(CodeFormatTest, ValuesAreWithinHalfAStepOfTheirs) {
  const std::vector<float> values = drawn_values();
  // The largest magnitude is 7. A step of int4 has 1/15 of a range of at most twice that; zero
  // points are whole, which moves both ends by up to half a step.
  const std::map<std::string, double> steps{
      {"int8", 7.0 / 127}, {"q8_0", 7.0 / 127}, {"q4_0", 7.0 / 8}, {"int4", 2 * 14.0 / 15}};
  for (const auto& [word, step] : steps) {
    const CodeFormat format = *code_format("--quantize", word);
    const std::vector<float> got = expanded(encode(format, values, kColumns), kColumns);
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - values[i]));
    // The scale of 16 bits adds 2^-11 of the value; the top of q4_0 is 7 of 8 steps.
    EXPECT_LT(worst, (word == "q4_0" ? 1.0 : 0.5) * step + 7 * 0x1p-11) << word;
    EXPECT_GT(worst, 0.1 * step) << word;
  }
}

TEST_F(CodeFormatTest, Int8RoundsToNearestEvenOfTheRowsScale) {
  const WeightCodes codes = encode(*code_format("", "int8"), {127, -127, 2.5F, 3.5F, -0.5F, 0}, 6);
  const auto* got = reinterpret_cast<const std::int8_t*>(codes.codes.raw());
  EXPECT_THAT(std::vector<int>(got, got + 6), testing::ElementsAre(127, -127, 2, 4, 0, 0));
  EXPECT_EQ(codes.scales.data<float>()[0], 1);
}

TEST_F(CodeFormatTest, Int4HasZeroAmongItsValues) {
  const WeightCodes codes = encode(*code_format("", "int4"), {0, 30, 15, 1, 0, 28}, 6);
  EXPECT_EQ(codes.zeros.data<float>()[0], 0);
  EXPECT_THAT(expanded(codes, 6), testing::ElementsAre(0, 30, 16, 0, 0, 28));
}

TEST_F(CodeFormatTest, Nf4EqualsBitsandbytes) {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/nf4.txt");
  std::string origin, codes, scales;
  ASSERT_TRUE(std::getline(file, origin) && std::getline(file, codes) &&
              std::getline(file, scales));
  const WeightCodes got = encode(*code_format("", "nf4"), drawn_values(), kColumns);
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    const auto both = std::to_integer<int>(got.codes.raw()[i / 2]);
    const int code = i % 2 == 0 ? both & 15 : both >> 4;
    ASSERT_EQ("0123456789abcdef"[code], codes[static_cast<std::size_t>(i)]) << i;
  }
  const std::span<float> nested(got.scales.data<float>(),
                                static_cast<std::size_t>(got.scales.elements()));
  nest_scales(nested);
  std::istringstream wanted(scales);
  for (const float scale : nested) {
    double one = 0;
    ASSERT_TRUE(wanted >> one);
    ASSERT_NEAR(scale, one, 2e-6);
  }
}

TEST_F(CodeFormatTest, ZerosAndShortRowsKeepTheirValues) {
  for (const char* word : {"int8", "int4", "q8_0", "q4_0", "nf4"}) {
    const CodeFormat format = *code_format("--quantize", word);
    for (const float value : expanded(encode(format, std::vector<float>(37, 0.0F), 37), 37))
      ASSERT_EQ(value, 0) << word;
    EXPECT_NEAR(expanded(encode(format, {-0.5F}, 1), 1)[0], -0.5, 1e-3) << word;
  }
}

// Formats with zero points: every value is within half a step, and 0 is exact.
TEST_F(CodeFormatTest, OfZerosAreWithinHalfAStep) {
  std::vector<float> values;
  for (int i = 0; i < 64; ++i) values.push_back(0.01F * static_cast<float>(i * i % 41) - 0.1F);
  values[5] = 0;
  for (const auto& [rule, steps] :
       {std::pair{Quantization::kInt8Zeros, 255.0F}, {Quantization::kInt4Zeros, 15.0F}}) {
    for (const std::int64_t group : {0, 32}) {
      const std::vector<float> got = expanded(encode({rule, group}, values, 64), 64);
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(got[i], values[i], 0.51F * 0.5F / steps) << i;
      EXPECT_EQ(got[5], 0);
    }
  }
}

TEST_F(CodeFormatTest, WhatCannotBeQuantizedIsRefused) {
  for (const char* word : {"int8", "int4", "q8_0", "q4_0", "nf4"}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      EXPECT_THAT(message_of(Fault::kData,
                             [&] {
                               encode(*code_format("--quantize", word), {1, bad}, 2);
                             }),
                  HasSubstr("w: has values that are not finite"))
          << word;
    }
  }
  EXPECT_THAT(message_of(Fault::kUsage, [] { (void)code_format("--quantize", "int3"); }),
              HasSubstr("--quantize: got \"int3\", wanted int8, int4, q8_0, q4_0, nf4, "
                        "q4_k, q5_k or q6_k"));
  EXPECT_FALSE(code_format("--quantize", ""));
}

}  // namespace
}  // namespace piton
