// Mixtures of experts whose inputs are weighted, against Megatron-core
// (tests/golden/experts/weighted_inputs.txt, made by tools/oracle/weighted_inputs.py), whose
// softmax is fp32. And an MLP that all tokens share, which is computed while tokens travel to
// experts and back.
#include "nn/expert_mlp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "comm/virtual/simulated_clock.h"
#include "comm/virtual/world.h"
#include "device/host_device.h"
#include "device/meta_device.h"
#include "kernels/meta/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/counting_kernels.h"
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

struct SharedLayer {
  bool shares = true;
  bool gate = false;
  bool sends_rows = false;
};

// Of forward and backward, on links on which tokens take half of the time of the second half of the
// shared MLP, one way.
LinkTimes times_of(const SharedLayer& layer) {
  constexpr std::int64_t kTokens = 1024, kWidth = 512, kShared = 4096;
  constexpr double kSpeed = 1e12;
  constexpr double kBytes = 2.0 * kTokens * kWidth;
  const LinkSpeed link{.bytes_per_second =
                           kBytes / (0.5 * 2.0 * kTokens * kWidth * kShared / kSpeed)};
  MetaDevice device;
  SimulatedClock clock({.within_hosts = link, .between_hosts = link, .ranks_of_host = 2});
  const auto world = make_virtual_world(0, 2, &clock);
  const auto ranks = make_group_of_all(*world, "experts");
  const auto alone = make_single_communicator(device, "alone");
  MetaKernels meta;
  CountingKernels kernels(meta);
  kernels.after = [&](const KernelCall& call) { clock.advance(flops(call) / kSpeed); };
  Arena arena(device);
  const auto stream = device.make_stream();
  ResidentWeights weights(kernels, arena);
  ParameterList parameters;
  const Shard shard{.group = alone.get(),
                    .experts = ranks.get(),
                    .row_counts = layer.sends_rows ? device.make_stream() : nullptr,
                    .dtype = DType::kBF16};
  ExpertMlpShape shape{.hidden = kWidth,
                       .ffn_hidden = 64,
                       .experts = 8,
                       .rules = {.choices = 2},
                       .gated = true,
                       .activation = ActivationKind::kSilu};
  if (layer.shares) shape.shared = SharedExpertShape{.ffn_hidden = kShared, .gate = layer.gate};
  const ExpertMlp mlp(parameters, shard, "mlp", shape, {});
  for (Parameter* parameter : parameters.all()) {
    parameter->value = arena.allocate(parameter->dtype, parameter->shape, MemoryKind::kParameters);
    parameter->gradient = arena.allocate(DType::kF32, parameter->shape, MemoryKind::kGradients);
  }
  Tape tape;
  Context context{.kernels = kernels,
                  .stream = *stream,
                  .device = device,
                  .arena = arena,
                  .weights = weights,
                  .tape = &tape,
                  .rows = {.sequence = kTokens}};
  const Value x = tape.leaf(context.activation(DType::kBF16, {kTokens, kWidth}));
  const Value y = mlp.forward(context, x, nullptr);
  tape.seed(y, context.activation(DType::kBF16, {kTokens, kWidth}));
  tape.backward(context, Tape::Mode::kWhole);
  return clock.times();
}

// By the clock of ranks that do not exist, on a device without memory.
TEST(SharedExpert, HidesTheWaysOfTokensToExpertsAndBack) {
  for (const bool sends_rows : {false, true}) {
    const auto shown = [&](bool shares, bool gate) {
      const LinkTimes of = times_of({shares, gate, sends_rows});
      return of.waited_seconds / of.transfers_seconds;
    };
    EXPECT_GT(shown(false, false), 0.99);
    // The choices of tokens, of which single rows need the counts, are not hidden.
    EXPECT_LT(shown(true, false), 0.02);
    EXPECT_LT(shown(true, true), 0.02);
  }
}

}  // namespace
}  // namespace piton
