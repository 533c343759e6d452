// Whole numbers with scales of tensors, rows and groups: the rules of W8A16 weights.
#include "codes/integer_codes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "support/errors.h"

namespace piton {
namespace {

constexpr std::int64_t kHeight = 6;
constexpr std::int64_t kWidth = 48;

std::vector<float> drawn() {
  std::vector<float> values;
  std::uint32_t state = 9;
  for (std::int64_t i = 0; i < kHeight * kWidth; ++i) {
    state = state * 1664525U + 1013904223U;
    values.push_back(static_cast<float>(static_cast<double>(state >> 8) / (1 << 24)) * 3 - 1);
  }
  return values;
}

class IntegerCodes : public testing::Test {
 protected:
  // With the scale of the tensor, if the format has one.
  WeightCodes encode(const IntegerFormat& format, const std::vector<float>& values) {
    WeightCodes codes = allocate_codes(held_format(format), kHeight, kWidth, arena_);
    const IntegerScale whole = integer_scale(format, ValueRange::of(values));
    for (std::int64_t row = 0; row < kHeight; ++row) {
      const auto part = std::span(values).subspan(static_cast<std::size_t>(row * kWidth), kWidth);
      if (format.whole_tensor) {
        encode_integers(format, whole, part, row_of(codes, row));
      } else {
        encode_integers(format, part, row_of(codes, row), "w");
      }
    }
    return codes;
  }
  std::vector<float> values_of(const IntegerFormat& format, const WeightCodes& codes) {
    std::vector<float> all(static_cast<std::size_t>(kHeight * kWidth));
    for (std::int64_t row = 0; row < kHeight; ++row) {
      integer_values(held_format(format), row_of(codes, row),
                     std::span(all).subspan(static_cast<std::size_t>(row * kWidth), kWidth));
    }
    return all;
  }
  // What kernels make of the same codes.
  std::vector<float> expanded(const WeightCodes& codes) {
    const Tensor rows = host_tensor(DType::kF32, {kHeight, kWidth});
    const auto stream = device_.make_stream();
    make_reference_kernels()->run(ExpandWeight{.rows = rows, .codes = codes}, *stream);
    return {rows.data<float>(), rows.data<float>() + rows.elements()};
  }

  HostDevice device_;
  Arena arena_{device_, 1 << 20};
};

std::vector<IntegerFormat> formats() {
  std::vector<IntegerFormat> list;
  for (const int bits : {8, 4}) {
    for (const bool symmetric : {true, false}) {
      for (const DType scale : {DType::kF32, DType::kBF16, DType::kF16}) {
        list.push_back({bits, 0, true, symmetric, scale});
        list.push_back({bits, 0, false, symmetric, scale});
        list.push_back({bits, 16, false, symmetric, scale});
      }
    }
  }
  return list;
}

TEST_F(IntegerCodes, AreWithinHalfAScaleOfTheValues) {
  std::vector<float> values = drawn();
  values[7] = 0;
  for (const IntegerFormat& format : formats()) {
    SCOPED_TRACE(fmt::format("{} bits, group {}, {}, {}", format.bits, format.group,
                             format.symmetric, name(format.scale)));
    const WeightCodes codes = encode(format, values);
    const std::vector<float> got = values_of(format, codes);
    EXPECT_EQ(got, expanded(codes));
    EXPECT_EQ(got[7], 0);
    const std::int64_t groups = codes.scales.dim(1);
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / kWidth;
      const std::int64_t group = static_cast<std::int64_t>(i) % kWidth / codes.group;
      const double scale = codes.scales.data<float>()[row * groups + group];
      EXPECT_EQ(scale, format.scale == DType::kBF16
                           ? to_float(to_bfloat16(static_cast<float>(scale)))
                           : scale);
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - values[i]) / scale);
    }
    // A scale that was rounded down leaves up to 2^-9 of the largest code beyond the last one, and
    // a zero point that was rounded half a code.
    EXPECT_LE(
        worst,
        0.5 + (format.scale == DType::kF32 ? 1e-5 : 255 * 0x1p-9 + (format.symmetric ? 0 : 0.5)));
    EXPECT_GT(worst, 0.3);
  }
}

TEST_F(IntegerCodes, OfEqualScalesAreTheSameForTensorsRowsAndGroups) {
  std::vector<float> values = drawn();
  for (std::size_t i = 0; i < values.size(); i += 16) {  // every group has the whole range
    values[i] = 2;
    values[i + 1] = -1;
  }
  for (const int bits : {8, 4}) {
    for (const bool symmetric : {true, false}) {
      const IntegerFormat tensor{.bits = bits, .whole_tensor = true, .symmetric = symmetric};
      const IntegerFormat channel{.bits = bits, .symmetric = symmetric};
      const IntegerFormat group{.bits = bits, .group = 16, .symmetric = symmetric};
      const std::vector<float> wanted = values_of(tensor, encode(tensor, values));
      EXPECT_EQ(values_of(channel, encode(channel, values)), wanted);
      EXPECT_EQ(values_of(group, encode(group, values)), wanted);
    }
  }
}

TEST_F(IntegerCodes, RoundHalvesToEvenAndReachTheEnds) {
  const IntegerFormat format;
  std::vector<float> row(kWidth, 0.0F);
  for (const auto& [place, value] :
       {std::pair{0, 127.0F}, {1, -127.0F}, {2, 2.5F}, {3, 3.5F}, {4, -0.5F}})
    row[static_cast<std::size_t>(place)] = value;
  const WeightCodes codes = allocate_codes(held_format(format), 1, kWidth, arena_);
  encode_integers(format, row, row_of(codes, 0), "w");
  const auto* got = reinterpret_cast<const std::int8_t*>(codes.codes.raw());
  EXPECT_THAT(std::vector<int>(got, got + 5), testing::ElementsAre(127, -127, 2, 4, 0));
}

// Scales are positive numbers, also of nothing but zeros.
TEST_F(IntegerCodes, OfZerosHaveScaleOne) {
  for (const IntegerFormat& format : formats()) {
    const WeightCodes codes = encode(format, std::vector<float>(kHeight * kWidth, 0.0F));
    for (std::int64_t i = 0; i < codes.scales.elements(); ++i)
      EXPECT_EQ(codes.scales.data<float>()[i], 1);
    EXPECT_EQ(values_of(format, codes), std::vector<float>(kHeight * kWidth, 0.0F));
  }
}

TEST_F(IntegerCodes, OfNumbersThatAreNotFiniteAreRefused) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values = drawn();
    values[kWidth + 3] = bad;
    for (const IntegerFormat& format : formats()) {
      if (format.whole_tensor) {
        EXPECT_FALSE(std::isfinite(integer_scale(format, ValueRange::of(values)).scale));
        continue;
      }
      EXPECT_THAT(message_of(Fault::kData, [&] { encode(format, values); }),
                  testing::HasSubstr("w: has values that are not finite"));
    }
  }
  std::vector<float> large = drawn();
  large[0] = 1e10F;  // beyond fp16
  const IntegerFormat narrow{.scale = DType::kF16};
  EXPECT_THAT(message_of(Fault::kData, [&] { encode(narrow, large); }),
              testing::HasSubstr("too large for the scale"));
}

}  // namespace
}  // namespace piton
