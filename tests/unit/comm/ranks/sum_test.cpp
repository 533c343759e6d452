#include "comm/ranks/sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "comm/ranks/vector/sum_loops.h"

namespace piton {
namespace {

template <typename T>
std::vector<T> run(SumLoops loops, DType dtype, Reduction reduction,
                   const std::vector<std::vector<T>>& inputs) {
  std::vector<T> out(inputs[0].size());
  std::vector<const std::byte*> sources;
  for (const auto& input : inputs) {
    sources.push_back(reinterpret_cast<const std::byte*>(input.data()));
  }
  std::byte* target = reinterpret_cast<std::byte*>(out.data());
  EXPECT_TRUE(loops({.dtype = dtype,
                     .reduction = reduction,
                     .sources = sources.data(),
                     .num_sources = static_cast<int>(sources.size()),
                     .targets = &target,
                     .num_targets = 1,
                     .elements = static_cast<std::int64_t>(out.size())}));
  return out;
}

// tensor/dtype.h is the oracle of the conversions; every fp16 and many fp32 sums pass through.
TEST(Sum, ConvertsEveryHalfAsTheDTypeDoes) {
  std::vector<Float16> all(65'536);
  for (int i = 0; i < 65'536; ++i) all[i].bits = static_cast<std::uint16_t>(i);
  const std::vector<Float16> negative_zero(65'536, Float16{0x8000});  // x + -0 is x
  for (SumLoops loops : sum_loops_here()) {
    const auto out = run<Float16>(loops, DType::kF16, Reduction::kSum, {all, negative_zero});
    for (int i = 0; i < 65'536; ++i) {
      if (std::isnan(to_float(all[i]))) {
        EXPECT_TRUE(std::isnan(to_float(out[i]))) << i;
      } else {
        EXPECT_EQ(out[i].bits, all[i].bits) << i;
      }
    }
  }
}

template <typename T, typename Round>
void expect_rounded_once(DType dtype, Round round) {
  // Bit patterns at random, so exponents of every size, subnormals, infinities and NaN occur.
  std::mt19937 random(3);
  std::vector<std::vector<T>> inputs(3, std::vector<T>(100'003));
  for (auto& input : inputs) {
    for (T& x : input) x.bits = static_cast<std::uint16_t>(random());
  }
  for (std::size_t i = 0; i < 50'000; ++i) {  // neighbors in size, where rounding matters most
    inputs[1][i].bits = static_cast<std::uint16_t>(inputs[0][i].bits + random() % 4096);
    inputs[2][i].bits = static_cast<std::uint16_t>(inputs[0][i].bits ^ (0x8000U | random() % 1024));
  }
  for (SumLoops loops : sum_loops_here()) {
    const auto out = run<T>(loops, dtype, Reduction::kSum, inputs);
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float sum = (to_float(inputs[0][i]) + to_float(inputs[1][i])) + to_float(inputs[2][i]);
      wrong += std::isnan(sum) ? !std::isnan(to_float(out[i])) : out[i].bits != round(sum).bits;
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST(Sum, RoundsHalvesOnceToNearestEven) { expect_rounded_once<Float16>(DType::kF16, to_float16); }

TEST(Sum, RoundsBFloat16OnceToNearestEven) {
  expect_rounded_once<BFloat16>(DType::kBF16, to_bfloat16);
}

TEST(Sum, EveryInstructionSetGivesTheSameBitsFromLeftToRight) {
  std::mt19937 random(4);
  std::vector<std::vector<float>> inputs(5, std::vector<float>(4097));
  for (auto& input : inputs) {
    for (float& x : input)
      x = std::ldexp(static_cast<float>(random()), -static_cast<int>(random() % 40));
  }
  for (SumLoops loops : sum_loops_here()) {
    const auto out = run<float>(loops, DType::kF32, Reduction::kSum, inputs);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float sum =
          (((inputs[0][i] + inputs[1][i]) + inputs[2][i]) + inputs[3][i]) + inputs[4][i];
      ASSERT_EQ(out[i], sum) << i;
    }
  }
}

TEST(Sum, IntegersWrapAndCompareWithTheirSign) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::vector<std::int64_t>> inputs = {{most, -5, 3}, {1, 2, -9}};
  for (SumLoops loops : sum_loops_here()) {
    EXPECT_EQ(run<std::int64_t>(loops, DType::kI64, Reduction::kSum, inputs),
              (std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(), -3, -6}));
    EXPECT_EQ(run<std::int64_t>(loops, DType::kI64, Reduction::kMax, inputs),
              (std::vector<std::int64_t>{most, 2, 3}));
  }
}

TEST(Sum, WritesAllTargetsWhichMayBeTheSources) {
  std::vector<float> a(3000, 1.5F);
  std::vector<float> b(3000, 2.0F);
  std::byte* both[] = {reinterpret_cast<std::byte*>(a.data()),
                       reinterpret_cast<std::byte*>(b.data())};
  const std::byte* sources[] = {both[0], both[1]};
  reduce(DType::kF32, Reduction::kSum, sources, 3000, both);
  EXPECT_EQ(a, std::vector<float>(3000, 3.5F));
  EXPECT_EQ(b, a);
}

}  // namespace
}  // namespace piton
