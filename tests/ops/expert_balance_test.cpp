// Routing and the balance of experts against Megatron-core (tests/golden/expert_balance.txt, made
// by tools/oracle/expert_balance.py): weights, balance and gradients. Its probabilities are fp32.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "device/host_device.h"
#include "kernels/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/golden_numbers.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

struct MegatronCase {
  std::int64_t tokens = 0, experts = 0, choices = 0;
  bool normalized = false;
  double factor = 0;
  bool sigmoid = false;
  ExpertGroups groups;
  double scaling = 1;
  std::vector<double> logits, bias, slope, weights, balance, gradient;
};

std::vector<MegatronCase> cases_of_megatron() {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/expert_balance.txt");
  std::string line;
  std::getline(file, line);
  std::vector<MegatronCase> cases;
  for (;;) {
    const std::vector<double> head = next_numbers(file);
    if (head.size() != 5 && head.size() != 8) return cases;
    MegatronCase one{.tokens = static_cast<std::int64_t>(head[0]),
                     .experts = static_cast<std::int64_t>(head[1]),
                     .choices = static_cast<std::int64_t>(head[2]),
                     .normalized = head[3] != 0,
                     .factor = head[4]};
    one.logits = next_numbers(file);
    if (head.size() == 8) {
      const auto integer = [&](std::size_t i) { return static_cast<std::int64_t>(head[i]); };
      one.sigmoid = true;
      one.groups = {integer(5), integer(6), integer(2) / integer(6)};
      one.scaling = head[7];
      one.bias = next_numbers(file);
    }
    for (std::vector<double>* list : {&one.slope, &one.weights, &one.balance, &one.gradient})
      *list = next_numbers(file);
    cases.push_back(one);
  }
}

void expect_megatrons(const MegatronCase& one, Kernels& kernels, Stream& stream) {
  const auto [n, m, k] = std::tuple(one.tokens, one.experts, one.choices);
  const auto integers = [](const Shape& shape) { return host_tensor(DType::kI32, shape); };
  const Tensor logits = tensor_of(DType::kF64, {n, m}, one.logits);
  const ScoreKind score = one.sigmoid ? ScoreKind::kSigmoid : ScoreKind::kSoftmax;
  // The balance is of choices without bias and groups.
  const RouteTokens counted{.weights = host_tensor(DType::kF64, {n, k}),
                            .choices = integers({n, k}),
                            .counts = integers({m}),
                            .balance = tensor_of(DType::kF64, {1}, std::vector{10.0}),
                            .logits = logits,
                            .score = score};
  kernels.run(counted, stream);
  const RouteTokens route{
      .weights = host_tensor(DType::kF64, {n, k}),
      .choices = integers({n, k}),
      .logits = logits,
      .normalized = one.normalized,
      .score = score,
      .factor = one.scaling,
      .bias = one.sigmoid ? tensor_of(DType::kF64, {m}, one.bias) : Tensor(),
      .groups = one.groups.divide() ? one.groups : ExpertGroups(),
  };
  kernels.run(route, stream);
  std::vector<double> weights(one.weights.size());
  std::vector<double> slope;
  for (std::int64_t i = 0; i < n * k; ++i) {
    const std::int64_t at = i / k * m + static_cast<std::int64_t>(value_at(route.choices, i));
    weights[static_cast<std::size_t>(at)] = value_at(route.weights, i);
    slope.push_back(one.slope[static_cast<std::size_t>(at)]);
  }
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(weights[i], one.weights[i], 1e-6);
  const auto rows = static_cast<double>(n);
  EXPECT_NEAR(value_at(counted.balance, 0) - 10, rows * one.balance[0], 1e-6 * rows);
  const Tensor dlogits = host_tensor(DType::kF64, {n, m});
  const double scale = 0.5;
  kernels.run(RouteBackward{.dlogits = dlogits,
                            .dweights = tensor_of(DType::kF64, {n, k}, slope),
                            .logits = logits,
                            .choices = route.choices,
                            .counts = counted.counts,
                            .scale = tensor_of(DType::kF64, {1}, std::vector{scale}),
                            .balance_factor = one.factor / scale,
                            .normalized = one.normalized,
                            .score = score,
                            .factor = one.scaling},
              stream);
  for (std::size_t i = 0; i < one.gradient.size(); ++i) {
    EXPECT_NEAR(value_at(dlogits, static_cast<std::int64_t>(i)), one.gradient[i],
                1e-6 * (1 + one.factor));
  }
}

TEST(ExpertBalance, IsThatOfMegatron) {
  HostDevice device;
  const auto kernels = make_reference_kernels();
  const auto stream = device.make_stream();
  const std::vector<MegatronCase> cases = cases_of_megatron();
  ASSERT_EQ(cases.size(), 8U);
  for (const MegatronCase& one : cases) {
    SCOPED_TRACE(fmt::format("{} of {}", one.choices, one.experts));
    expect_megatrons(one, *kernels, *stream);
  }
}

}  // namespace
}  // namespace piton::test
