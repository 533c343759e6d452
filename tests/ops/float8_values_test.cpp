// Numbers and products in FP8 against torch (tests/golden/float8.txt, tools/oracle/float8.py).
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "call_runner.h"
#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace piton::test {
namespace {

std::vector<std::vector<std::string>> golden_lines() {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/float8.txt");
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<std::string> list;
    for (std::string word; words >> word;) list.push_back(word);
    if (list[0] != "#") lines.push_back(list);
  }
  return lines;
}

double number(const std::string& word) { return std::strtod(word.c_str(), nullptr); }

Float8Format format_of(const std::string& word) {
  return word == "e4m3" ? Float8Format::kE4M3 : Float8Format::kE5M2;
}

// As drawn() of the oracle.
Tensor drawn(std::int64_t seed, std::int64_t rows, std::int64_t columns) {
  const Tensor tensor = host_tensor(DType::kBF16, {rows, columns});
  std::int64_t state = seed;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    state = (state * 1103515245 + 12345) % (std::int64_t{1} << 31);
    set_value(tensor, i,
              std::ldexp(static_cast<double>((state >> 8) % 257 - 128),
                         -static_cast<int>(7 + i / 40 % 4)));
  }
  return tensor;
}

// The call whose result the oracle calls `name`.
KernelCall product(const std::string& name, const Float8Products& float8) {
  const WeightView weight{
      .tensor = drawn(2, 130, 131), .out = 130, .in = 131, .dtype = DType::kBF16};
  if (name == "y") {
    return LinearForward{.y = host_tensor(DType::kF32, {2, 130}),
                         .x = drawn(1, 2, 131),
                         .weight = weight,
                         .float8 = float8};
  }
  if (name == "dx") {
    return LinearBackwardInput{.dx = host_tensor(DType::kBF16, {2, 131}),
                               .dy = drawn(3, 2, 130),
                               .weight = weight,
                               .float8 = float8};
  }
  return LinearBackwardWeight{.dweight = host_tensor(DType::kF32, {2, 3}),
                              .dy = drawn(3, 130, 2),
                              .x = drawn(1, 130, 3),
                              .overwrites = true,
                              .float8 = float8};
}

TEST(Float8, RoundsNumbersAsTorch) {
  int numbers = 0;
  for (const std::vector<std::string>& line : golden_lines()) {
    if (line[0] != "e4m3" && line[0] != "e5m2") continue;
    ++numbers;
    EXPECT_EQ(rounded_to_float8(static_cast<float>(number(line[1])), format_of(line[0])),
              static_cast<float>(number(line[2])))
        << line[0] << " " << line[1];
  }
  EXPECT_GT(numbers, 300);
}

TEST(Float8, KeepsLargeNumbersInTheRangeAndShowsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Float8Format format : {Float8Format::kE4M3, Float8Format::kE5M2}) {
    const float largest = largest_float8(format);
    for (const float x : {largest * 1.01F, largest * 16, std::numeric_limits<float>::max()}) {
      EXPECT_EQ(rounded_to_float8(x, format), largest);
      EXPECT_EQ(rounded_to_float8(-x, format), -largest);
    }
    for (const float x : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()})
      EXPECT_TRUE(std::isnan(rounded_to_float8(x, format)));
  }
}

TEST(Float8, ScalesAreFinite) {
  const Float8Format e4m3 = Float8Format::kE4M3;
  EXPECT_EQ(float8_scale(0, e4m3, false), 1);
  EXPECT_EQ(float8_scale(448, e4m3, true), 1);
  EXPECT_EQ(float8_scale(449, e4m3, true), 0.5F);
  EXPECT_EQ(float8_scale(3, e4m3, false), 448.0F / 3);
  EXPECT_EQ(float8_scale(3, e4m3, true), 128);
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(float8_scale(tiny, e4m3, false), std::numeric_limits<float>::max());
  EXPECT_EQ(float8_scale(tiny, e4m3, true), 0x1p127F);
}

// Scales of blocks are powers of two, so these products are exact.
TEST(Float8, ProductsOfTheReferenceAreThoseOfTheOracle) {
  int products = 0;
  for (const std::vector<std::string>& line : golden_lines()) {
    const bool blockwise = line[0] == "blockwise";
    if (!blockwise && line[0] != "tensorwise") continue;
    ++products;
    const Float8Products float8{blockwise ? Float8Recipe::kBlockwise : Float8Recipe::kTensorwise,
                                format_of(line[1])};
    const Tensor result = outputs(run_reference(product(line[2], float8)))[0].second;
    const std::vector<double> all = values(result);
    const std::size_t stride = line[2] == "dw" ? 1 : 7;
    ASSERT_EQ(line.size(), 3 + (all.size() + stride - 1) / stride);
    for (std::size_t i = 3; i < line.size(); ++i) {
      const double got = all[(i - 3) * stride];
      const double wanted = number(line[i]);
      const double roundoff = unit_roundoff(result.dtype());
      const bool exact = blockwise && result.dtype() == DType::kF32;
      EXPECT_NEAR(got, wanted, exact ? 0 : 1.001 * roundoff * std::fabs(wanted) + 1e-9)
          << line[0] << " " << line[1] << " " << line[2] << " " << i - 3;
    }
  }
  EXPECT_EQ(products, 12);
}

}  // namespace
}  // namespace piton::test
