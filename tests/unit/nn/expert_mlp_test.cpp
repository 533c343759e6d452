// Mixtures of experts whose inputs are weighted, against Megatron-core
// (tests/golden/experts/weighted_inputs.txt, made by tools/oracle/weighted_inputs.py), whose
// softmax is fp32.
#include "nn/expert_mlp.h"

#include <gtest/gtest.h>

#include <cmath>
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

struct WeightedCase {
  std::int64_t tokens = 0;
  ExpertMlpShape shape;
  std::vector<double> x, slope, router, experts, y, dx, drouter, dexperts;
};

std::vector<WeightedCase> weighted_cases() {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/experts/weighted_inputs.txt");
  std::string line;
  std::getline(file, line);
  std::vector<WeightedCase> cases;
  for (;;) {
    const std::vector<double> head = test::next_numbers(file);
    if (head.size() != 6) return cases;
    const auto integer = [&](std::size_t i) { return static_cast<std::int64_t>(head[i]); };
    WeightedCase one{
        .tokens = integer(0),
        .shape = {.hidden = integer(1),
                  .ffn_hidden = integer(2),
                  .experts = integer(3),
                  .rules = {.score = head[4] != 0 ? ScoreKind::kSigmoid : ScoreKind::kSoftmax,
                            .capacity_factor = head[5]},
                  .weighs_inputs = true,
                  .gated = true,
                  .activation = ActivationKind::kSilu}};
    for (std::vector<double>* list : {&one.x, &one.slope, &one.router, &one.experts, &one.y,
                                      &one.dx, &one.drouter, &one.dexperts})
      *list = test::next_numbers(file);
    cases.push_back(std::move(one));
  }
}

// The matrices of each expert in turn, [2 f, h] and [h, f], as the parameters of the layer have
// them: all first ones, then all second ones.
std::vector<double> of_parameter(const WeightedCase& one, const std::vector<double>& all,
                                 bool second) {
  const auto part = static_cast<std::size_t>(one.shape.ffn_hidden * one.shape.hidden);
  std::vector<double> values;
  for (std::size_t expert = 0; expert < all.size() / (3 * part); ++expert) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(3 * part * expert);
    const auto middle = begin + static_cast<std::ptrdiff_t>(2 * part);
    values.insert(values.end(), second ? middle : begin,
                  second ? middle + static_cast<std::ptrdiff_t>(part) : middle);
  }
  return values;
}

double largest_difference(const Tensor& got, const std::vector<double>& wanted) {
  EXPECT_EQ(got.elements(), std::ssize(wanted));
  double largest = 0;
  for (std::int64_t i = 0; i < got.elements(); ++i)
    largest = std::max(largest, std::abs(value_at(got, i) - wanted[static_cast<std::size_t>(i)]));
  return largest;
}

void expect_layer_of_megatron(const WeightedCase& one) {
  HostDevice device;
  Arena arena{device};
  const auto alone = make_single_communicator(device, "alone");
  const std::unique_ptr<Stream> stream = device.make_stream();
  const std::unique_ptr<Kernels> kernels = make_reference_kernels();
  ResidentWeights weights{*kernels, arena};
  ParameterList parameters;
  const Shard shard{.group = alone.get(), .experts = alone.get(), .dtype = DType::kF64};
  const ExpertMlp layer(parameters, shard, "mlp", one.shape, {});
  const auto wanted = [&](const Parameter& parameter, const std::vector<double>& router,
                          const std::vector<double>& experts) {
    if (parameter.name == "mlp.router.weight") return router;
    return of_parameter(one, experts, parameter.name == "mlp.experts.down.weight");
  };
  for (Parameter* parameter : parameters.all()) {
    parameter->value =
        tensor_of(DType::kF64, parameter->shape, wanted(*parameter, one.router, one.experts));
    parameter->gradient = host_tensor(DType::kF64, parameter->shape);
  }
  Tape tape;
  Context context{.kernels = *kernels,
                  .stream = *stream,
                  .device = device,
                  .arena = arena,
                  .weights = weights,
                  .tape = &tape,
                  .rows = {.sequence = one.tokens},
                  .limits_experts = true};
  const Shape rows{one.tokens, one.shape.hidden};
  const Value x = tape.leaf(tensor_of(DType::kF64, rows, one.x));
  const Value y = layer.forward(context, x, nullptr);
  EXPECT_LT(largest_difference(y.tensor, one.y), 1e-5);
  tape.seed(y, tensor_of(DType::kF64, rows, one.slope));
  tape.backward(context, Tape::Mode::kWhole);
  EXPECT_LT(largest_difference(tape.take_gradient(x, context), one.dx), 1e-5);
  for (const Parameter* parameter : parameters.all()) {
    EXPECT_LT(
        largest_difference(parameter->gradient, wanted(*parameter, one.drouter, one.dexperts)),
        1e-5)
        << parameter->name;
  }
}

TEST(ExpertMlp, WeighsInputsAsMegatronDoes) {
  const std::vector<WeightedCase> cases = weighted_cases();
  ASSERT_EQ(cases.size(), 3U);
  for (const WeightedCase& one : cases) {
    SCOPED_TRACE(
        fmt::format("{} tokens, capacity {}", one.tokens, one.shape.rules.capacity_factor));
    expect_layer_of_megatron(one);
  }
}

}  // namespace
}  // namespace piton
