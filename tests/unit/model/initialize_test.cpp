// Initial weights of --init-method-xavier-uniform: the bound is that of torch.nn.init.
// xavier_uniform_ on the matrix that Megatron has, and every layout draws the same numbers.
#include "model/initialize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include "nn/shard.h"
#include "support/thread_world.h"
#include "tensor/tensor.h"

namespace piton {
namespace {

constexpr std::int64_t kIn = 96;
constexpr std::int64_t kQuery = 64;
constexpr std::int64_t kKey = 32;

// The whole canonical tensors, from parameters of `ranks` tensor ranks.
std::map<std::string, std::vector<float>> drawn(int ranks) {
  std::map<std::string, std::vector<float>> whole;
  std::mutex mutex;
  test::run_ranks(ranks, [&](World& world) {
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    const std::unique_ptr<Communicator> group = world.make_group(all, "tensor");
    const Shard shard{.group = group.get()};
    const Initialization xavier{.kind = Initialization::Kind::kXavier};
    ThreadPool threads(1);
    const Parameter parameters[] = {
        row_split_parameter(shard, "qkv", {{"q", kQuery}, {"k", kKey}, {"v", kKey}}, kIn, xavier),
        column_split_parameter(shard, "dense", kIn, kQuery, xavier),
        vocabulary_parameter(shard, "table", {.size = 250, .padded = 256}, kIn, xavier)};
    for (const Parameter& parameter : parameters) {
      const Tensor rows = host_tensor(DType::kF32, parameter.shape);
      write_initial_rows(parameter, 7, threads, rows);
      const std::lock_guard lock(mutex);
      for (const Piece& piece : parameter.pieces) {
        std::vector<float>& values = whole[piece.name];
        values.resize(static_cast<std::size_t>(piece.global.elements()));
        for (std::int64_t row = 0; row < piece.extent[0]; ++row) {
          std::memcpy(values.data() + (piece.start[0] + row) * piece.global[1] + piece.start[1],
                      rows.data<float>() + (piece.local_row + row) * parameter.shape[1],
                      static_cast<std::size_t>(piece.extent[1]) * sizeof(float));
        }
      }
    }
  });
  return whole;
}

// The bias of steps: their logarithms are uniform.
TEST(StepBiases, GiveStepsOfAllSizes) {
  test::run_ranks(1, [](World& world) {
    const int all[] = {0};
    const std::unique_ptr<Communicator> group = world.make_group(all, "tensor");
    const Parameter parameter = row_split_parameter(
        {.group = group.get()}, "bias", {{"bias", 20000}}, 0,
        {.kind = Initialization::Kind::kSoftplusLogUniform, .bound = 0.1, .lowest = 0.001});
    const Tensor rows = host_tensor(DType::kF32, parameter.shape);
    ThreadPool threads(1);
    write_initial_rows(parameter, 7, threads, rows);
    double sum = 0;
    double squares = 0;
    for (std::int64_t i = 0; i < rows.elements(); ++i) {
      const double step = std::log1p(std::exp(static_cast<double>(rows.data<float>()[i])));
      ASSERT_TRUE(step > 0.00099 && step < 0.1001) << step;
      const double decades = std::log10(step);
      sum += decades / 20000;
      squares += decades * decades / 20000;
    }
    EXPECT_NEAR(sum, -2, 0.02);
    EXPECT_NEAR(squares - sum * sum, 1.0 / 3, 0.01);
  });
}

// The decay of states: from 0.01 to 16 before the logarithm, with the mean and the mean square of
// uniform numbers.
TEST(LogUniformWeights, AreLogarithmsOfUniformNumbers) {
  test::run_ranks(1, [](World& world) {
    const int all[] = {0};
    const std::unique_ptr<Communicator> group = world.make_group(all, "tensor");
    const Parameter parameter = row_split_parameter(
        {.group = group.get()}, "rate", {{"rate", 20000}}, 0,
        {.kind = Initialization::Kind::kLogUniform, .bound = 16, .lowest = 0.01});
    const Tensor rows = host_tensor(DType::kF32, parameter.shape);
    ThreadPool threads(1);
    write_initial_rows(parameter, 7, threads, rows);
    double sum = 0;
    double squares = 0;
    for (std::int64_t i = 0; i < rows.elements(); ++i) {
      const double value = std::exp(static_cast<double>(rows.data<float>()[i]));
      ASSERT_TRUE(value > 0.0099 && value < 16.001) << value;
      sum += value / 20000;
      squares += value * value / 20000;
    }
    EXPECT_NEAR(sum, 8.005, 0.15);
    EXPECT_NEAR(squares, 85.39, 2.5);
  });
}

TEST(XavierWeights, AreUniformWithinTheBoundOfTheWholeMatrix) {
  const std::map<std::string, double> bounds = {{"q", std::sqrt(6.0 / (kQuery + 2 * kKey + kIn))},
                                                {"k", std::sqrt(6.0 / (kQuery + 2 * kKey + kIn))},
                                                {"v", std::sqrt(6.0 / (kQuery + 2 * kKey + kIn))},
                                                {"dense", std::sqrt(6.0 / (kIn + kQuery))},
                                                {"table", std::sqrt(6.0 / (250 + kIn))}};
  const auto whole = drawn(1);
  ASSERT_EQ(whole.size(), bounds.size());
  for (const auto& [name, values] : whole) {
    const double bound = bounds.at(name);
    double largest = 0, sum = 0, squares = 0;
    for (const float value : values) {
      largest = std::max(largest, std::abs(static_cast<double>(value)));
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const auto count = static_cast<double>(values.size());
    EXPECT_LE(largest, bound * (1 + 1e-7)) << name;
    EXPECT_GT(largest, bound * 0.99) << name;
    // Five deviations of the mean and of the mean square of `count` uniform numbers.
    EXPECT_NEAR(sum / count, 0, 5 * bound / std::sqrt(3 * count)) << name;
    EXPECT_NEAR(squares / count, bound * bound / 3, 5 * bound * bound * std::sqrt(4.0 / 45 / count))
        << name;
  }
  EXPECT_NE(whole.at("k"), whole.at("v"));
}

TEST(XavierWeights, AreTheSameUnderEveryLayout) {
  const auto whole = drawn(1);
  EXPECT_EQ(drawn(2), whole);
  EXPECT_EQ(drawn(4), whole);
}

}  // namespace
}  // namespace piton
