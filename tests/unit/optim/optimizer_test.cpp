// The update against the recursion in double, and the norm over simulated ranks.
#include "optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "parallel/data_parallel.h"
#include "support/errors.h"
#include "support/tensors.h"
#include "support/thread_world.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Parameter matrix(const std::string& name, std::int64_t rows, std::int64_t columns,
                 DType dtype = DType::kF32) {
  Parameter parameter;
  parameter.name = name;
  parameter.dtype = dtype;
  parameter.shape = {rows, columns};
  parameter.pieces = {{.name = name,
                       .global = {rows, columns},
                       .start = {0, 0},
                       .extent = {rows, columns},
                       .local_row = 0,
                       .initialization = {},
                       .decays = true}};
  return parameter;
}

Parameter vector(const std::string& name, std::int64_t size, DType dtype = DType::kF32) {
  Parameter parameter;
  parameter.name = name;
  parameter.dtype = dtype;
  parameter.shape = {size};
  parameter.pieces = {{.name = name,
                       .global = {size},
                       .start = {0},
                       .extent = {size},
                       .local_row = 0,
                       .initialization = {},
                       .decays = false}};
  return parameter;
}

// One process with all that an optimizer needs.
struct Alone {
  HostDevice device;
  Arena arena{device};
  std::unique_ptr<Stream> stream = device.make_stream();
  std::unique_ptr<World> world = make_single_world(device);
  Mesh mesh{*world, MeshSizes()};
  std::unique_ptr<Kernels> kernels = make_reference_kernels();
};

// The recursion of one element in double.
struct Scalar {
  double p = 0, m = 0, v = 0;
  void step(const OptimizerOptions& o, double lr, double g, bool decays, int t) {
    if (o.kind == OptimizerKind::kSgd) {
      m = o.sgd_momentum * m + g + (decays ? o.weight_decay * p : 0);
      p -= lr * m;
      return;
    }
    if (decays) p *= 1 - lr * o.weight_decay;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    p -=
        lr * (m / (1 - std::pow(o.beta1, t))) / (std::sqrt(v / (1 - std::pow(o.beta2, t))) + o.eps);
  }
};

// Ten steps of fp32 roundings of main, m and v: each at most 2^-24 relative, and the update itself
// is at most about lr a step (SGD: lr times a sum of clipped gradients); so 10 x 2^-24 of the value
// and as much of ten updates.
constexpr double kTenRoundings = 10 * 0x1p-23;

TEST(Optimizer, FollowsTheRecursionInDoubleForTenSteps) {
  const OptimizerOptions kinds[] = {{.kind = OptimizerKind::kAdam},
                                    {.kind = OptimizerKind::kSgd},
                                    {.kind = OptimizerKind::kSgd, .sgd_momentum = 0}};
  const std::vector<std::string_view> names[] = {
      {"exp_avg", "exp_avg_sq"}, {"momentum_buffer"}, {}};
  for (const auto& [kind, dtype] : {std::pair{0, DType::kF32},
                                    {0, DType::kBF16},
                                    {1, DType::kF32},
                                    {1, DType::kBF16},
                                    {2, DType::kF32},
                                    {2, DType::kBF16}}) {
    SCOPED_TRACE(fmt::format("kind {} of {}", kind, name(dtype)));
    Alone alone;
    Parameter weight = matrix("w", 6, 5, dtype);
    Parameter bias = vector("b", 7, dtype);
    OptimizerOptions options = kinds[kind];
    options.weight_decay = 0.1;
    options.clip_grad = 1.5;
    test::TensorSource source(7);
    std::vector<UpdateSpan> spans = {
        {&weight, 0, host_tensor(DType::kF32, {30}), source.normal(dtype, {30})},
        {&bias, 0, host_tensor(DType::kF32, {7}), source.normal(dtype, {7})}};
    std::vector<std::vector<Scalar>> expected;
    for (const UpdateSpan& span : spans) {
      expected.emplace_back();
      for (const double p : test::values(span.value)) expected.back().push_back({.p = p});
    }
    Optimizer optimizer(options, spans, alone.mesh,
                        {*alone.kernels, alone.device, alone.arena, *alone.stream},
                        {.norm_block = 16});
    optimizer.reset_main(*alone.stream);
    std::mt19937_64 random(3);
    std::normal_distribution<double> draw(0, 0.4);
    for (int t = 1; t <= 10; ++t) {
      const double lr = static_cast<float>(1e-2 / t);
      double squares = 0;
      for (const UpdateSpan& span : spans) {
        for (std::int64_t i = 0; i < span.gradient.elements(); ++i) {
          const auto g = static_cast<float>(draw(random));
          span.gradient.data<float>()[i] = g;
          squares += double{g} * g;
        }
      }
      optimizer.step({lr, options.weight_decay}, *alone.stream);
      const StepResult result = optimizer.result(*alone.stream);
      EXPECT_NEAR(result.grad_norm, std::sqrt(squares), 1e-14 * std::sqrt(squares));
      EXPECT_FALSE(result.skipped);
      const double scale = std::min(1.0, 1.5 / (std::sqrt(squares) + 1e-6));
      if (t == 1) {
        EXPECT_LT(scale, 1) << "the case is meant to clip";
      }
      for (std::size_t s = 0; s < spans.size(); ++s) {
        for (std::size_t i = 0; i < expected[s].size(); ++i) {
          expected[s][i].step(options, lr, spans[s].gradient.data<float>()[i] * scale, s == 0, t);
        }
      }
    }
    EXPECT_EQ(optimizer.steps(), 10);
    for (std::size_t s = 0; s < spans.size(); ++s) {
      const OptimizerState& state = optimizer.state()[s];
      for (std::size_t i = 0; i < expected[s].size(); ++i) {
        const double p = expected[s][i].p;
        EXPECT_NEAR(state.main.data<float>()[i], p, kTenRoundings * (std::fabs(p) + 0.03));
        const double moments[] = {expected[s][i].m, expected[s][i].v};
        ASSERT_EQ(state.moments.size(), names[kind].size());
        for (std::size_t m = 0; m < state.moments.size(); ++m) {
          EXPECT_EQ(state.moments[m].name, names[kind][m]);
          EXPECT_NEAR(state.moments[m].values.data<float>()[i], moments[m],
                      kTenRoundings * std::max(1.0, std::fabs(moments[m])));
        }
        if (dtype == DType::kBF16) {
          EXPECT_EQ(spans[s].value.data<BFloat16>()[i].bits,
                    to_bfloat16(state.main.data<float>()[i]).bits);
        }
      }
    }
  }
}

TEST(Optimizer, KeepsFp32WeightsAsTheirOwnMainCopy) {
  Alone alone;
  Parameter weight = matrix("w", 2, 2);
  const Tensor value = host_tensor(DType::kF32, {4});
  Optimizer optimizer({}, {{&weight, 0, host_tensor(DType::kF32, {4}), value}}, alone.mesh,
                      {*alone.kernels, alone.device, alone.arena, *alone.stream},
                      {.norm_block = 16});
  EXPECT_TRUE(optimizer.state()[0].main_is_value);
  EXPECT_EQ(optimizer.state()[0].main.raw(), value.raw());
}

TEST(Optimizer, SkipsAStepWhoseNormIsNotFiniteAndChangesNothing) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Alone alone;
    Parameter weight = matrix("w", 2, 3, DType::kBF16);
    test::TensorSource source(1);
    const Tensor gradient = source.normal(DType::kF32, {6});
    const Tensor value = source.normal(DType::kBF16, {6});
    Optimizer optimizer({}, {{&weight, 0, gradient, value}}, alone.mesh,
                        {*alone.kernels, alone.device, alone.arena, *alone.stream},
                        {.norm_block = 16});
    optimizer.reset_main(*alone.stream);
    optimizer.step({0.01, 0.01}, *alone.stream);
    const auto before = test::values(value);
    const auto first = test::values(optimizer.state()[0].moments[0].values);
    test::set_value(gradient, 4, bad);
    optimizer.step({0.01, 0.01}, *alone.stream);
    const StepResult result = optimizer.result(*alone.stream);
    EXPECT_TRUE(result.skipped);
    EXPECT_FALSE(std::isfinite(result.grad_norm));
    EXPECT_EQ(test::values(value), before);
    EXPECT_EQ(test::values(optimizer.state()[0].moments[0].values), first);
    EXPECT_EQ(optimizer.steps(), 1);
    EXPECT_EQ(optimizer.skipped(), 1);
    test::set_value(gradient, 4, 0.5);
    optimizer.step({0.01, 0.01}, *alone.stream);
    EXPECT_FALSE(optimizer.result(*alone.stream).skipped);
    EXPECT_EQ(optimizer.steps(), 2);
  }
}

// The gradients are those of the scaled loss; what is skipped is what overflows.
TEST(Optimizer, FollowsMegatronsLossScale) {
  std::ifstream file(std::filesystem::path(PITON_SOURCE_DIR) /
                     "tests/golden/megatron_loss_scales.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(line);
    std::istringstream words(line);
    OptimizerOptions options;
    words >> options.initial_loss_scale >> options.min_loss_scale >> options.loss_scale_window >>
        options.hysteresis;
    options.fp16 = true;
    Alone alone;
    Parameter weight = matrix("w", 2, 3, DType::kF16);
    test::TensorSource source(1);
    const Tensor gradient = source.normal(DType::kF32, {6});
    const Tensor value = source.normal(DType::kF16, {6});
    Optimizer optimizer(options, {{&weight, 0, gradient, value}}, alone.mesh,
                        {*alone.kernels, alone.device, alone.arena, *alone.stream},
                        {.norm_block = 16});
    optimizer.reset_main(*alone.stream);
    std::string kind;
    double scale = 0;
    int steps = 0;
    for (; words >> kind >> scale; ++steps) {
      for (int i = 0; i < 6; ++i) test::set_value(gradient, i, 0.5 * optimizer.loss_scale());
      if (kind == "x") test::set_value(gradient, 4, std::numeric_limits<double>::infinity());
      const auto before = test::values(value);
      optimizer.step({0.01, 0.01}, *alone.stream);
      const StepResult result = optimizer.result(*alone.stream);
      EXPECT_EQ(result.skipped, kind == "x");
      if (result.skipped) {
        EXPECT_EQ(test::values(value), before);
      } else {
        EXPECT_DOUBLE_EQ(result.grad_norm, std::sqrt(6 * 0.25));
      }
      EXPECT_EQ(optimizer.loss_scale(), scale) << "step " << steps;
      // A run that stops here and resumes has the same state.
      const OptimizerProgress progress = optimizer.progress();
      optimizer.set_progress(progress);
      EXPECT_EQ(optimizer.progress(), progress);
    }
    EXPECT_EQ(steps, 48);
    ++cases;
  }
  EXPECT_EQ(cases, 8);
}

// The average after the values are set is the values; a skipped update leaves it.
TEST(Optimizer, KeepsAMovingAverageOfTheWeights) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kSgd}) {
      Alone alone;
      Parameter weight = matrix("w", 2, 3, dtype);
      test::TensorSource source(4);
      const Tensor gradient = source.normal(DType::kF32, {6});
      const Tensor value = source.normal(dtype, {6});
      OptimizerOptions options{.kind = kind, .sgd_momentum = 0};
      options.average_decay = 0.75;
      Optimizer optimizer(options, {{&weight, 0, gradient, value}}, alone.mesh,
                          {*alone.kernels, alone.device, alone.arena, *alone.stream},
                          {.norm_block = 16});
      optimizer.reset_main(*alone.stream);
      const OptimizerState& state = optimizer.state()[0];
      EXPECT_EQ(state.moments.back().name, "ema");
      std::vector<double> expected = test::values(value);
      EXPECT_EQ(test::values(state.moments.back().values), expected);
      for (int step = 0; step < 4; ++step) {
        test::set_value(gradient, 2, step == 2 ? std::nan("") : 0.25);
        optimizer.step({0.125, 0.01}, *alone.stream);
        EXPECT_EQ(optimizer.result(*alone.stream).skipped, step == 2);
        const auto main = test::values(state.main);
        for (std::size_t i = 0; step != 2 && i < 6; ++i) {
          expected[i] += 0.25 * (main[i] - expected[i]);
        }
        for (std::size_t i = 0; i < 6; ++i) {
          EXPECT_NEAR(test::value_at(state.moments.back().values, static_cast<std::int64_t>(i)),
                      expected[i], 1e-6);
        }
      }
    }
  }
}

// By hand: a window of 4 and 3 sigmas; the rule begins when two steps are known. Of losses 1, 2, 1,
// 2 the mean is 1.5 and the deviation 0.577: above 3.232 is a spike.
TEST(Optimizer, SkipsSpikesOfTheLossAndOfTheNorm) {
  struct Step {
    double loss, norm;
    bool skipped;
  };
  const std::vector<Step> steps{
      {1, 1, false},           {200, 1, false},  // too early for a rule
      {1, 1.1, true},          {2, 0.9, false}, {1, 1, false},
      {2, 1.05, false},        {3.2, 1, false},  // 1, 2, 1, 2 are known
      {1, 1, false},           {2, 1, false},   {1, 1, false},
      {2, 0.999, false},       {3.3, 1, true},  // the same are known again
      {2, 1, false},                            // 2, 1, 2, 3.3
      {1, 1.5, true},                           // a norm
      {std::nan(""), 1, false}};                // no number is no spike of the loss
  Alone alone;
  Parameter weight = matrix("w", 1, 1);
  const Tensor gradient = host_tensor(DType::kF32, {1});
  const Tensor value = host_tensor(DType::kF32, {1});
  OptimizerOptions options;
  options.spike_sigmas = 3;
  options.spike_window = 4;
  Optimizer optimizer(options, {{&weight, 0, gradient, value}}, alone.mesh,
                      {*alone.kernels, alone.device, alone.arena, *alone.stream},
                      {.norm_block = 16});
  int number = 0;
  for (const Step& step : steps) {
    SCOPED_TRACE(++number);
    test::set_value(gradient, 0, step.norm);
    const auto before = test::values(value);
    optimizer.step({.learning_rate = 0.1, .loss = step.loss}, *alone.stream);
    const StepResult result = optimizer.result(*alone.stream);
    EXPECT_EQ(result.skipped, step.skipped);
    EXPECT_EQ(test::values(value) == before, step.skipped);
    EXPECT_NEAR(result.grad_norm, step.norm, 1e-6);
    // A run that stops here and resumes knows the same.
    optimizer.set_progress(OptimizerProgress(optimizer.progress()));
  }
}

TEST(Optimizer, NamesTheParametersWhoseGradientsAreNotFinite) {
  Alone alone;
  Parameter a = matrix("a", 8, 8);
  Parameter b = matrix("b", 2, 3);
  Parameter c = vector("c", 40);
  std::vector<UpdateSpan> spans;
  for (Parameter* parameter : {&c, &a, &b}) {
    spans.push_back({parameter, 0, host_tensor(DType::kF32, {parameter->elements()}),
                     host_tensor(DType::kF32, {parameter->elements()})});
  }
  Optimizer optimizer({}, spans, alone.mesh,
                      {*alone.kernels, alone.device, alone.arena, *alone.stream},
                      {.norm_block = 16});
  optimizer.step({0.01, 0.01}, *alone.stream);
  EXPECT_THAT(optimizer.parameters_not_finite(*alone.stream), ElementsAre());
  test::set_value(spans[1].gradient, 63, std::nan(""));
  test::set_value(spans[0].gradient, 0, std::numeric_limits<double>::infinity());
  optimizer.step({0.01, 0.01}, *alone.stream);
  EXPECT_THAT(optimizer.parameters_not_finite(*alone.stream), ElementsAre("a", "c"));
}

// A constant scale is that of the options, whatever a checkpoint had.
TEST(Optimizer, KeepsAConstantLossScale) {
  Alone alone;
  Parameter weight = matrix("w", 2, 3);
  OptimizerOptions options;
  options.loss_scale = 8;
  Optimizer optimizer(
      options, {{&weight, 0, host_tensor(DType::kF32, {6}), host_tensor(DType::kF32, {6})}},
      alone.mesh, {*alone.kernels, alone.device, alone.arena, *alone.stream}, {.norm_block = 16});
  EXPECT_EQ(optimizer.loss_scale(), 8);
  optimizer.set_progress({.steps = 3, .skipped = 1, .loss_scale = 64});
  EXPECT_EQ(optimizer.loss_scale(), 8);
  EXPECT_EQ(optimizer.steps(), 3);
}

TEST(DecayRuns, FollowThePiecesRowsAndTakePaddingWithThePartBefore) {
  Parameter fused;
  fused.name = "fused";
  fused.shape = {10, 4};
  const auto piece = [](std::int64_t row, std::int64_t rows, bool decays) {
    return Piece{.name = "p" + std::to_string(row),
                 .global = {rows, 4},
                 .start = {0, 0},
                 .extent = {rows, 4},
                 .local_row = row,
                 .initialization = {},
                 .decays = decays};
  };
  fused.pieces = {piece(6, 2, false), piece(0, 3, true), piece(3, 3, true)};  // rows 8, 9: padding
  EXPECT_THAT(decay_runs(fused, 0, 40), ElementsAre(Pair(24, true), Pair(16, false)));
  EXPECT_THAT(decay_runs(fused, 20, 10), ElementsAre(Pair(4, true), Pair(6, false)));
  EXPECT_THAT(decay_runs(fused, 33, 7), ElementsAre(Pair(7, false)));
  EXPECT_THAT(decay_runs(fused, 0, 0), ElementsAre());
}

TEST(OptimizerOptions, RefuseWhatCannotBe) {
  const auto refused = [](auto&& change) {
    OptimizerOptions options;
    change(options);
    return message_of(Fault::kUsage, [&] { options.check(); });
  };
  EXPECT_EQ(refused([](auto& o) { o.beta1 = 1; }),
            "optimizer: --adam-beta1: got 1, wanted at least 0 and below 1");
  EXPECT_THAT(refused([](auto& o) { o.beta2 = -0.1; }), HasSubstr("--adam-beta2"));
  // fp32 holds neither.
  for (const double eps : {0.0, 1e-320, 1e300})
    EXPECT_THAT(refused([&](auto& o) { o.eps = eps; }), HasSubstr("--adam-eps")) << eps;
  EXPECT_EQ(refused([](auto& o) { o.weight_decay = 1e-320; }),
            "optimizer: --weight-decay: got 1e-320, wanted 0, or 1e-30 or more");
  EXPECT_THAT(refused([](auto& o) { o.sgd_momentum = 1; }), HasSubstr("--sgd-momentum"));
  EXPECT_THAT(refused([](auto& o) { o.weight_decay = -1; }), HasSubstr("--weight-decay"));
  EXPECT_THAT(refused([](auto& o) { o.clip_grad = -1; }), HasSubstr("--clip-grad"));
  EXPECT_THAT(refused([](auto& o) { o.start_weight_decay = 0; }),
              HasSubstr("--start-weight-decay: needs --weight-decay-incr-style linear or cosine"));
  EXPECT_THAT(refused([](auto& o) { o.end_weight_decay = 0.1; }), HasSubstr("--end-weight-decay"));
  const auto ramp = [](auto& o, double start, double end) {
    o.weight_decay_increase = WeightDecayIncrease::kLinear;
    o.start_weight_decay = start;
    o.end_weight_decay = end;
  };
  EXPECT_THAT(refused([](auto& o) { o.weight_decay_increase = WeightDecayIncrease::kCosine; }),
              HasSubstr("needs --start-weight-decay and --end-weight-decay"));
  EXPECT_THAT(refused([&](auto& o) { ramp(o, -1, 0); }), HasSubstr("--start-weight-decay: got -1"));
  EXPECT_THAT(refused([&](auto& o) { ramp(o, 0.2, 0.1); }),
              HasSubstr("--end-weight-decay: got 0.1, wanted at least --start-weight-decay, which "
                        "is 0.2"));
  EXPECT_THAT(refused([](auto& o) { o.loss_scale = 0; }), HasSubstr("--loss-scale: got 0"));
  EXPECT_THAT(refused([](auto& o) { o.initial_loss_scale = NAN; }),
              HasSubstr("--initial-loss-scale: got nan"));
  EXPECT_THAT(refused([](auto& o) { o.min_loss_scale = 0x1p33; }),
              HasSubstr("--min-loss-scale: got 8589934592, wanted at most --initial-loss-scale"));
  EXPECT_THAT(refused([](auto& o) { o.loss_scale_window = 0; }),
              HasSubstr("--loss-scale-window: got 0, wanted 1 or more"));
  EXPECT_THAT(refused([](auto& o) { o.hysteresis = 0; }), HasSubstr("--hysteresis: got 0"));
  EXPECT_THAT(refused([](auto& o) { o.muon.momentum = 1; }), HasSubstr("--muon-momentum: got 1"));
  EXPECT_THAT(refused([](auto& o) { o.muon.steps = 100; }),
              HasSubstr("--muon-num-ns-steps: got 100, wanted 1 to 99"));
  EXPECT_THAT(refused([](auto& o) { o.muon.extra_scale = 0; }),
              HasSubstr("--muon-extra-scale-factor: got 0"));
  EXPECT_THAT(refused([](auto& o) { o.cadam.beta = 1; }), HasSubstr("--cadam-beta: got 1"));
  EXPECT_THAT(refused([](auto& o) {
                o.kind = OptimizerKind::kCadam;
                o.beta1 = 0.95;
              }),
              HasSubstr("--adam-beta1: got 0.95, but the momentum of --optimizer cadam decays by "
                        "--cadam-beta"));
}

// Two spans by two rules in one step: each as an optimizer of its rule alone would update it.
TEST(Optimizer, UpdatesEachSpanByItsRule) {
  const auto run = [](std::vector<std::optional<OptimizerKind>> rules, OptimizerKind kind) {
    Alone alone;
    Parameter weight = matrix("w", 4, 5, DType::kF32);
    Parameter bias = vector("b", 7, DType::kF32);
    test::TensorSource source(9);
    std::vector<UpdateSpan> spans = {
        {&weight, 0, source.normal(DType::kF32, {20}), source.normal(DType::kF32, {20}), rules[0]},
        {&bias, 0, source.normal(DType::kF32, {7}), source.normal(DType::kF32, {7}), rules[1]}};
    Optimizer optimizer({.kind = kind, .clip_grad = 0.5}, spans, alone.mesh,
                        {*alone.kernels, alone.device, alone.arena, *alone.stream},
                        {.norm_block = 16});
    optimizer.reset_main(*alone.stream);
    for (int step = 0; step < 3; ++step) optimizer.step({0.1, 0.01}, *alone.stream);
    EXPECT_EQ(optimizer.result(*alone.stream).skipped, false);
    EXPECT_EQ(optimizer.steps(), 3);
    return std::pair{test::values(spans[0].value), test::values(spans[1].value)};
  };
  const auto adam = run({{}, {}}, OptimizerKind::kAdam);
  const auto sgd = run({{}, {}}, OptimizerKind::kSgd);
  const auto mixed = run({OptimizerKind::kAdam, OptimizerKind::kSgd}, OptimizerKind::kAdam);
  EXPECT_EQ(mixed.first, adam.first);
  EXPECT_EQ(mixed.second, sgd.second);
  EXPECT_NE(mixed.second, adam.second);
}

// A bias of choices: a step of its own rate against the sign, without moments, in every optimizer;
// not in the norm, and not moved by a step that is skipped.
TEST(Optimizer, MovesBiasesOfChoicesBySignAlone) {
  for (const OptimizerKind kind :
       {OptimizerKind::kAdam, OptimizerKind::kSgd, OptimizerKind::kMuon, OptimizerKind::kCadam}) {
    Alone alone;
    Parameter weight = matrix("w", 2, 2, DType::kF32);
    Parameter bias = vector("b", 3, DType::kF32);
    bias.sign_rate = 0.25;
    const auto fp32 = [](const std::vector<double>& contents) {
      return test::tensor_of(DType::kF32, {std::ssize(contents)}, contents);
    };
    const std::vector<UpdateSpan> spans = {{&weight, 0, fp32({3, 0, 4, 0}), fp32({1, 1, 1, 1})},
                                           {&bias, 0, fp32({1e6, 0, -2}), fp32({1, 2, 3})}};
    Optimizer optimizer({.kind = kind, .clip_grad = 0.5}, spans, alone.mesh,
                        {*alone.kernels, alone.device, alone.arena, *alone.stream});
    EXPECT_TRUE(optimizer.state()[1].moments.empty());
    optimizer.reset_main(*alone.stream);
    for (int step = 0; step < 2; ++step) optimizer.step({0.1, 0.01}, *alone.stream);
    EXPECT_EQ(optimizer.result(*alone.stream).grad_norm, 5);
    EXPECT_EQ(test::values(spans[1].value), (std::vector<double>{0.5, 2, 3.5}));
    EXPECT_EQ(optimizer.figures(*alone.stream).num_zeros, 2);
    test::set_value(spans[0].gradient, 0, std::numeric_limits<double>::infinity());
    optimizer.step({0.1, 0.01}, *alone.stream);
    EXPECT_TRUE(optimizer.result(*alone.stream).skipped);
    EXPECT_EQ(test::values(spans[1].value), (std::vector<double>{0.5, 2, 3.5}));
  }
}

// Gradients wide in size, so that every order of a sum rounds apart.
std::vector<float> gradient_of(const std::string& name, std::int64_t elements) {
  std::mt19937_64 random(std::hash<std::string>()(name));
  std::normal_distribution<double> draw(0, 3);
  std::vector<float> gradient;
  for (std::int64_t i = 0; i < elements; ++i)
    gradient.push_back(static_cast<float>(std::exp(draw(random))));
  return gradient;
}

// The norm of a model of three parameters (6, 1 and 3 blocks) over `ranks` data-parallel ranks.
std::vector<double> norms(int zero_stage, int ranks) {
  std::vector<double> result(static_cast<std::size_t>(ranks));
  test::run_ranks(ranks, [&](World& world) {
    HostDevice device;
    Arena arena(device);
    const auto stream = device.make_stream();
    const auto kernels = make_reference_kernels();
    MeshSizes sizes;
    sizes[Axis::kData] = ranks;
    Mesh mesh(world, sizes);
    ParameterList list;
    for (Parameter parameter :
         {matrix("z", 5 * 130, 130), vector("a", 77), matrix("m", 3, kNormBlock - 1)}) {
      parameter.contributions = 1;
      parameter.placement[Axis::kData].gradient_is_partial = true;
      list.add(std::move(parameter));
    }
    auto sharded =
        ShardedParameters::make(zero_stage, list.all(), mesh, {*kernels, device, arena, *stream});
    for (Parameter* parameter : list.all()) {
      sharded->set_value(*parameter, host_tensor(DType::kF32, parameter->shape), *stream);
    }
    sharded->publish_values(*stream);
    OptimizerOptions options;
    Optimizer optimizer(options, update_spans(sharded->owned()), mesh,
                        {*kernels, device, arena, *stream});
    sharded->begin_step(1, *stream);
    for (Parameter* parameter : list.all()) {
      const Tensor gradient = sharded->gradient(*parameter, *stream).flatten();
      // Whole on rank 0, nothing on the others: the sum over ranks is exact.
      if (world.rank() == 0) {
        const std::vector<float> whole = gradient_of(parameter->name, gradient.elements());
        std::copy(whole.begin(), whole.end(), gradient.data<float>());
      }
      sharded->contribute(*parameter, *stream);
    }
    sharded->finish_gradients(*stream);
    optimizer.step({1e-3, 0.01}, *stream);
    result[static_cast<std::size_t>(world.rank())] = optimizer.result(*stream).grad_norm;
    sharded->publish_values(*stream);
  });
  return result;
}

// A cut between two ranks may divide a block's sum in two, which rounds once more in fp64.
TEST(GradientNorm, IsTheSameOverAnyNumberOfRanksAndEveryZeroStage) {
  const double alone = norms(0, 1)[0];
  double plain = 0;
  for (const auto& [name, elements] : {std::pair<std::string, std::int64_t>{"z", 5 * 130 * 130},
                                       {"a", 77},
                                       {"m", 3 * (kNormBlock - 1)}}) {
    for (const float g : gradient_of(name, elements)) plain += double{g} * double{g};
  }
  EXPECT_NEAR(alone, std::sqrt(plain), 1e-12 * alone);
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const double norm : norms(stage, ranks)) {
        EXPECT_NEAR(norm, alone, 1e-14 * alone)
            << "ZeRO stage " << stage << " on " << ranks << " ranks";
        EXPECT_EQ(static_cast<float>(norm), static_cast<float>(alone));
      }
    }
  }
}

TEST(GradientNorm, CountsReplicatedAndTiedCopiesOnceAndSplitPartsEach) {
  // 2 tensor x 2 pipeline ranks. "split" is split over tensor, on stage 0; "norm" is replicated
  // over tensor, on stage 1; "tied" is split over tensor and on both stages.
  MeshSizes sizes;
  sizes[Axis::kTensor] = 2;
  sizes[Axis::kPipeline] = 2;
  test::run_ranks(4, [&](World& world) {
    Alone alone;
    Mesh mesh(world, sizes);
    const int tensor = mesh.coordinate(Axis::kTensor);
    Parameter split = matrix("split", 2, 2);
    split.placement[Axis::kTensor] = {AxisPlacement::Kind::kSplit, 0, false};
    Parameter norm = vector("norm", 4);
    Parameter tied = matrix("tied", 2, 2);
    tied.placement[Axis::kTensor] = {AxisPlacement::Kind::kSplit, 0, false};
    tied.tied_stages = {0, 1};
    std::vector<UpdateSpan> spans;
    const auto add = [&](Parameter& parameter, double value) {
      const std::vector<double> gradient(4, value);
      spans.push_back({&parameter, 0, test::tensor_of(DType::kF32, {4}, gradient),
                       host_tensor(DType::kF32, {4})});
    };
    if (mesh.coordinate(Axis::kPipeline) == 0) {
      add(split, 1 + tensor);  // 4 x 1 + 4 x 4
    } else {
      add(norm, 3);  // 4 x 9, once
    }
    add(tied, 5 + tensor);  // 4 x 25 + 4 x 36, once
    OptimizerOptions options;
    Optimizer optimizer(options, spans, mesh,
                        {*alone.kernels, alone.device, alone.arena, *alone.stream},
                        {.norm_block = 16});
    optimizer.step({1e-3, 0.01}, *alone.stream);
    EXPECT_DOUBLE_EQ(optimizer.result(*alone.stream).grad_norm, std::sqrt(20.0 + 36.0 + 244.0));
  });
}

// The same ranks: copies count once, rows of padding not at all.
TEST(Figures, CountEveryElementOfTheModelOnce) {
  MeshSizes sizes;
  sizes[Axis::kTensor] = 2;
  sizes[Axis::kPipeline] = 2;
  test::run_ranks(4, [&](World& world) {
    Alone alone;
    Mesh mesh(world, sizes);
    Parameter table = matrix("table", 3, 2, DType::kBF16);  // the last row is padding
    table.placement[Axis::kTensor] = {AxisPlacement::Kind::kSplit, 0, false};
    table.tied_stages = {0, 1};
    table.pieces[0].extent = {2, 2};
    Parameter norm = vector("norm", 4);
    std::vector<UpdateSpan> spans;
    const auto add = [&](Parameter& parameter, DType dtype, const std::vector<double>& gradient,
                         const std::vector<double>& value) {
      const auto size = static_cast<std::int64_t>(value.size());
      spans.push_back({&parameter, 0, test::tensor_of(DType::kF32, {size}, gradient),
                       test::tensor_of(dtype, {size}, value)});
    };
    // On each tensor rank: 2 zeros, and 1 + 4 + 9 + 16 = 30.
    add(table, DType::kBF16, {0, 1, -0.0, 2, 0, 0}, {1, 2, 3, 4, 0, 0});
    // On one stage: 3 zeros, and 4 x 9 = 36.
    if (mesh.coordinate(Axis::kPipeline) == 1) {
      add(norm, DType::kF32, {0, 0, 5, 0}, {3, 3, 3, 3});
    }
    Optimizer optimizer({}, spans, mesh, {*alone.kernels, alone.device, alone.arena, *alone.stream},
                        {.norm_block = 2});
    optimizer.reset_main(*alone.stream);
    const OptimizerFigures figures = optimizer.figures(*alone.stream);
    EXPECT_EQ(figures.num_zeros, 2 + 2 + 3);
    EXPECT_DOUBLE_EQ(figures.params_norm, std::sqrt(30.0 + 30.0 + 36.0));
  });
}

}  // namespace
}  // namespace piton
