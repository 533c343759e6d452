// The balance of samples, the z-loss and the capacity of experts, with their gradients, against
// Megatron-core (tests/golden/router_losses.txt, made by tools/oracle/router_losses.py). Its
// softmax is fp32.
#include "ops/experts/routing.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "support/golden_numbers.h"
#include "support/tensors.h"

namespace piton {
namespace {

using test::tensor_of;
using test::value_at;

struct RouterCase {
  std::int64_t samples = 0, sequence = 0, experts = 0;
  RoutingRules rules;
  std::vector<double> logits, slope, weights, losses, gradient, counts;

  std::int64_t rows() const { return samples * sequence; }
};

std::vector<RouterCase> router_cases() {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/router_losses.txt");
  std::string line;
  std::getline(file, line);
  std::vector<RouterCase> cases;
  for (;;) {
    const std::vector<double> head = test::next_numbers(file);
    if (head.size() != 10) return cases;
    const auto integer = [&](std::size_t i) { return static_cast<std::int64_t>(head[i]); };
    RouterCase one{.samples = integer(0),
                   .sequence = integer(1),
                   .experts = integer(2),
                   .rules = {.choices = integer(3),
                             .normalized = head[5] != 0,
                             .score = head[4] != 0 ? ScoreKind::kSigmoid : ScoreKind::kSoftmax,
                             .balance_factor = head[6],
                             .z_factor = head[7],
                             .balances_samples = true,
                             .capacity_factor = head[8],
                             .keeps_first = head[9] != 0}};
    for (std::vector<double>* list :
         {&one.logits, &one.slope, &one.weights, &one.losses, &one.gradient, &one.counts})
      *list = test::next_numbers(file);
    cases.push_back(one);
  }
}

// Logits are x itself, whose router is the unit matrix. One sum over all rows, as in a session,
// is divided by their number.
void expect_router_of_megatron(const RouterCase& one) {
  HostDevice device;
  Arena arena{device};
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<Kernels> kernels = make_reference_kernels();
  ResidentWeights weights{*kernels, arena};
  Tape tape;
  const std::int64_t n = one.rows(), m = one.experts, k = one.rules.choices;
  Parameter router;
  router.name = "router";
  router.shape = {m, m};
  router.dtype = DType::kF64;
  router.trainable = false;
  router.value = host_tensor(DType::kF64, {m, m});
  for (std::int64_t e = 0; e < m; ++e) test::set_value(router.value, e * m + e, 1);
  Context context{
      .kernels = *kernels,
      .stream = *stream,
      .device = device,
      .arena = arena,
      .weights = weights,
      .tape = &tape,
      .rows = {.sequence = one.sequence},
      .balance = {.sum = tensor_of(DType::kF64, {1}, std::vector{0.0}),
                  .z_sum = tensor_of(DType::kF64, {1}, std::vector{0.0}),
                  .scale = tensor_of(DType::kF64, {1}, std::vector{1 / static_cast<double>(n)})},
      .limits_experts = true};
  const Value x = tape.leaf(tensor_of(DType::kF64, {n, m}, one.logits));
  const Routing routing = routed(context, x, {.weight = &router, .rules = one.rules});
  std::vector<double> slope;
  std::vector<double> counts(static_cast<std::size_t>(m));
  for (std::int64_t i = 0; i < n * k; ++i) {
    const auto expert = static_cast<std::int64_t>(value_at(routing.choices, i));
    if (expert < 0) {  // dropped: no gradient comes back
      slope.push_back(0);
      continue;
    }
    ++counts[static_cast<std::size_t>(expert)];
    const auto at = static_cast<std::size_t>(i / k * m + expert);
    EXPECT_NEAR(value_at(routing.weights.tensor, i), one.weights[at], 1e-6);
    slope.push_back(one.slope[at]);
  }
  EXPECT_EQ(counts, one.counts);
  const auto rows = static_cast<double>(n);
  if (one.rules.balance_factor != 0) {
    EXPECT_NEAR(value_at(context.balance.sum, 0), rows * one.losses[0], 1e-6 * rows);
  }
  if (one.rules.z_factor != 0) {
    EXPECT_NEAR(value_at(context.balance.z_sum, 0), rows * one.losses[1], 1e-12 * rows);
  } else
    EXPECT_EQ(value_at(context.balance.z_sum, 0), 0);
  tape.seed(routing.weights, tensor_of(DType::kF64, {n, k}, slope));
  tape.backward(context, Tape::Mode::kWhole);
  const Tensor dx = tape.take_gradient(x, context);
  for (std::size_t i = 0; i < one.gradient.size(); ++i)
    EXPECT_NEAR(value_at(dx, static_cast<std::int64_t>(i)), one.gradient[i], 1e-6);
}

// Weights, choices and the gradient of the logits, which are x itself.
struct RoutedNumbers {
  std::vector<double> weights, choices, dx;
  bool operator==(const RoutedNumbers&) const = default;
};

constexpr PhiloxKey kRandomKey = {3, 5};
constexpr std::int64_t kRandomRows = 12, kRandomExperts = 6, kRandomChoices = 2;

MaskRows random_rows() {
  return {.consumed_samples = tensor_of(DType::kI64, {1}, std::vector{8.0}), .sequence = 4};
}

RoutedNumbers routed_numbers(const Tensor& logits, bool random, bool training) {
  HostDevice device;
  Arena arena{device};
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<Kernels> kernels = make_reference_kernels();
  ResidentWeights weights{*kernels, arena};
  Tape tape;
  Parameter router;
  router.name = "router";
  router.shape = {kRandomExperts, kRandomExperts};
  router.dtype = DType::kF64;
  router.trainable = false;
  router.value = host_tensor(DType::kF64, router.shape);
  for (std::int64_t e = 0; e < kRandomExperts; ++e)
    test::set_value(router.value, e * kRandomExperts + e, 1);
  Context context{.kernels = *kernels,
                  .stream = *stream,
                  .device = device,
                  .arena = arena,
                  .weights = weights,
                  .tape = &tape,
                  .rows = random_rows(),
                  .limits_experts = training};
  const Value x = tape.leaf(logits);
  const Routing routing = routed(context, x,
                                 {.weight = &router,
                                  .rules = {.choices = kRandomChoices, .random = random},
                                  .random_key = kRandomKey});
  RoutedNumbers numbers{.weights = test::values(routing.weights.tensor),
                        .choices = test::values(routing.choices)};
  std::vector<double> slope;
  for (int i = 0; i < kRandomRows * kRandomChoices; ++i) slope.push_back(i % 5 - 1.5);
  tape.seed(routing.weights, tensor_of(DType::kF64, {kRandomRows, kRandomChoices}, slope));
  tape.backward(context, Tape::Mode::kWhole);
  numbers.dx = test::values(tape.take_gradient(x, context));
  return numbers;
}

// Random logits take the place of those of x and give their gradient to them.
TEST(Routing, OfRandomLogitsIsThatOfTheDrawnNumbers) {
  HostDevice device;
  const std::unique_ptr<Stream> stream = device.make_stream();
  const Tensor drawn = host_tensor(DType::kF64, {kRandomRows, kRandomExperts});
  make_reference_kernels()->run(
      AddNoise{.y = drawn, .bounds = {}, .key = kRandomKey, .rows = random_rows()}, *stream);
  test::TensorSource source(4);
  const Tensor x = source.normal(DType::kF64, {kRandomRows, kRandomExperts});
  const RoutedNumbers random = routed_numbers(x, true, /*training=*/true);
  EXPECT_EQ(random, routed_numbers(drawn, false, true));
  EXPECT_NE(random.choices, routed_numbers(x, false, true).choices);
  EXPECT_EQ(routed_numbers(x, true, /*training=*/false), routed_numbers(x, false, false));
}

TEST(Routing, HasTheLossesOfMegatronAndDropsWhatItDrops) {
  const std::vector<RouterCase> cases = router_cases();
  ASSERT_EQ(cases.size(), 10U);
  for (const RouterCase& one : cases) {
    SCOPED_TRACE(fmt::format("{} samples, {} of {}, capacity {}", one.samples, one.rules.choices,
                             one.experts, one.rules.capacity_factor));
    expect_router_of_megatron(one);
  }
}

}  // namespace
}  // namespace piton
