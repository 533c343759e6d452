// GPTQ against a plain reading of the paper in fp64 (tests/golden/gptq.txt, tools/oracle/gptq.py),
// and its purpose: outputs change less than by rounding.
#include "codes/gptq.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "device/host_device.h"
#include "support/errors.h"

namespace piton {
namespace {

constexpr std::int64_t kOutputs = 5;
constexpr std::int64_t kInputs = 24;
constexpr std::int64_t kSamples = 40;
constexpr double kDamping = 0.01;

// As in tools/oracle/gptq.py.
class Drawn {
 public:
  Drawn() {
    for (std::int64_t i = 0; i < kOutputs * kInputs; ++i) weights.push_back(next());
    for (std::int64_t sample = 0; sample < kSamples; ++sample) {
      std::vector<double> x;
      for (std::int64_t i = 0; i < kInputs; ++i) x.push_back(next());
      for (std::size_t i = 1; i < x.size(); ++i) x[i] = x[i] / 4 + x[i - 1];
      x[5] = 0;
      samples.push_back(x);
    }
    for (std::size_t i = 0; i < kInputs; ++i) {
      for (std::size_t j = 0; j < kInputs; ++j) {
        double sum = 0;
        for (const auto& x : samples) sum += x[i] * x[j];
        squares.push_back(static_cast<float>(sum));
      }
    }
  }

  std::vector<float> weights;
  std::vector<std::vector<double>> samples;
  std::vector<float> squares;

 private:
  float next() {
    state_ = (state_ * 1103515245U + 12345U) % 2147483648U;
    return static_cast<float>((state_ >> 8) % 256) / 128 - 1;
  }
  std::uint32_t state_ = 1;
};

std::vector<float> values_of(const IntegerFormat& format, const WeightCodes& codes,
                             std::int64_t columns) {
  std::vector<float> all;
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < codes.codes.dim(0); ++i) {
    integer_values(held_format(format), row_of(codes, i), row);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

class Gptq : public testing::Test {
 protected:
  WeightCodes quantize(const IntegerFormat& format, int threads = 1) {
    ThreadPool pool(threads);
    const std::string name = "w";
    const GptqFactor factor(drawn_.squares, kInputs, kDamping, "w", pool);
    WeightCodes codes = allocate_codes(held_format(format), kOutputs, kInputs, arena_);
    gptq(format, factor, {name, drawn_.weights, codes}, pool);
    return codes;
  }
  // Mean square of (W - W') x.
  double error(const std::vector<float>& values) const {
    double sum = 0;
    for (const auto& x : drawn_.samples) {
      for (std::size_t row = 0; row < kOutputs; ++row) {
        double y = 0;
        for (std::size_t i = 0; i < kInputs; ++i) {
          const std::size_t at = row * kInputs + i;
          y += (static_cast<double>(drawn_.weights[at]) - values[at]) * x[i];
        }
        sum += y * y;
      }
    }
    return sum;
  }

  Drawn drawn_;
  HostDevice device_;
  Arena arena_{device_, 1 << 20};
};

TEST_F(Gptq, GivesTheCodesOfThePaper) {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/gptq.txt");
  std::string origin;
  ASSERT_TRUE(std::getline(file, origin));
  IntegerFormat format;
  int cases = 0;
  for (int bits = 0; file >> bits; ++cases) {
    format.bits = bits;
    file >> format.group >> format.symmetric;
    SCOPED_TRACE(fmt::format("{} bits, groups of {}", bits, format.group));
    const WeightCodes got = quantize(format);
    for (std::int64_t row = 0; row < kOutputs; ++row) {
      const std::byte* codes = row_of(got, row).codes;
      for (std::int64_t i = 0; i < kInputs; ++i) {
        int wanted = 0;
        ASSERT_TRUE(file >> wanted);
        const auto byte = std::to_integer<std::uint8_t>(codes[bits == 4 ? i / 2 : i]);
        const int code =
            bits == 4 ? (i % 2 == 0 ? byte & 15 : byte >> 4) : static_cast<std::int8_t>(byte);
        ASSERT_EQ(code, wanted) << "row " << row << ", column " << i;
      }
    }
    for (std::int64_t i = 0; i < got.scales.elements(); ++i) {
      double wanted = 0;
      ASSERT_TRUE(file >> wanted);
      EXPECT_NEAR(got.scales.data<float>()[i], wanted, 1e-6 * wanted);
    }
  }
  EXPECT_EQ(cases, 5);
}

TEST_F(Gptq, ChangesOutputsLessThanRounding) {
  for (const IntegerFormat& format :
       {IntegerFormat{.bits = 4}, IntegerFormat{.bits = 4, .group = 8, .symmetric = false}}) {
    const WeightCodes nearest = allocate_codes(held_format(format), kOutputs, kInputs, arena_);
    for (std::int64_t row = 0; row < kOutputs; ++row) {
      encode_integers(
          format,
          std::span(drawn_.weights).subspan(static_cast<std::size_t>(row * kInputs), kInputs),
          row_of(nearest, row), "w");
    }
    const double rounded = error(values_of(format, nearest, kInputs));
    const double spread = error(values_of(format, quantize(format), kInputs));
    EXPECT_LT(spread, 0.7 * rounded);
    EXPECT_GT(spread, 0);
  }
}

TEST_F(Gptq, DoesNotDependOnThreads) {
  const IntegerFormat format{.bits = 4, .group = 8};
  EXPECT_EQ(values_of(format, quantize(format, 1), kInputs),
            values_of(format, quantize(format, 4), kInputs));
}

// More columns than a panel: U^T U (X X^T + damping) is the identity.
TEST_F(Gptq, FactorIsThatOfTheInverse) {
  constexpr std::int64_t kIn = 150;
  std::vector<float> squares(kIn * kIn);
  for (std::int64_t i = 0; i < kIn; ++i) {
    for (std::int64_t j = 0; j < kIn; ++j)
      squares[static_cast<std::size_t>(i * kIn + j)] =
          1.0F / static_cast<float>(1 + std::abs(i - j));
  }
  ThreadPool pool(2);
  const GptqFactor factor(squares, kIn, 0.5, "w", pool);
  for (std::int64_t i = 0; i < kIn; ++i) squares[static_cast<std::size_t>(i * kIn + i)] += 0.5F;
  std::vector<double> inverse(kIn * kIn);
  for (std::int64_t k = 0; k < kIn; ++k) {
    for (std::int64_t i = 0; i < kIn; ++i) {
      if (i < k) {
        ASSERT_EQ(factor.row(k)[i], 0);
      }
      for (std::int64_t j = 0; j < kIn; ++j)
        inverse[static_cast<std::size_t>(i * kIn + j)] += factor.row(k)[i] * factor.row(k)[j];
    }
  }
  double worst = 0;
  for (std::int64_t i = 0; i < kIn; ++i) {
    for (std::int64_t j = 0; j < kIn; ++j) {
      double sum = i == j ? -1 : 0;
      for (std::int64_t k = 0; k < kIn; ++k) {
        sum += inverse[static_cast<std::size_t>(i * kIn + k)] *
               static_cast<double>(squares[static_cast<std::size_t>(k * kIn + j)]);
      }
      worst = std::max(worst, std::abs(sum));
    }
  }
  EXPECT_LT(worst, 1e-12);
}

TEST_F(Gptq, InputsThatGiveNoFactorAreRefused) {
  ThreadPool pool(1);
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           const std::vector<float> squares = {1, 2, 2, 1};
                           GptqFactor(squares, 2, 0.01, "w", pool);
                         }),
              testing::HasSubstr("w: the squares of its inputs on the calibration text are not "
                                 "positive definite"));
  EXPECT_THAT(
      message_of(
          Fault::kData,
          [&] {
            const std::vector<float> squares = {std::numeric_limits<float>::quiet_NaN(), 0, 0, 1};
            GptqFactor(squares, 2, 0.01, "w", pool);
          }),
      testing::HasSubstr("w: its inputs on the calibration text are not finite"));
}

}  // namespace
}  // namespace piton
