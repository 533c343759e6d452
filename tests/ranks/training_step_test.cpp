// ranks: 2
// What a step does apart from its layout, on every layout of two ranks (by day each case on some of
// them): an update without finite gradients is skipped by all, half precision under a loss scale,
// Muon, and what is computed again.
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "ranks/setting.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::ranks::training_step_test {

namespace {

using test::mesh;
using test::RunLayout;
using test::sampled;
using test::TrainingRun;

// Steps of a run, or of each half of one that is interrupted.
const int kPart = test::nightly() ? 10 : 5;

std::vector<RunLayout> layouts(const OptimizerOptions& optimizer = {}) {
  std::vector<RunLayout> all{
      {.name = "TP 2", .mesh = mesh(2, 1, 1)},
      {.name = "TP 2 + SP", .mesh = mesh(2, 1, 1), .sequence_parallel = true},
      {.name = "PP 2", .mesh = mesh(1, 1, 2)},
      {.name = "PP 2, ZB-H1", .mesh = mesh(1, 1, 2), .schedule = {ScheduleKind::kZeroBubbleH1}},
      {.name = "DP 2", .mesh = mesh(1, 2, 1)},
      {.name = "ZeRO-1", .mesh = mesh(1, 2, 1), .zero = 1},
      {.name = "ZeRO-2", .mesh = mesh(1, 2, 1), .zero = 2},
      {.name = "ZeRO-3", .mesh = mesh(1, 2, 1), .zero = 3}};
  for (RunLayout& layout : all) layout.optimizer = optimizer;
  return all;
}

ModelConfig small(const std::string& name, DType dtype = DType::kF32) {
  ModelConfig model = preset(name);
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  model.dtype = dtype;
  return model;
}

// One rank of one process.
struct Alone {
  Alone(const RunLayout& layout, const ModelConfig& model)
      : world(make_single_world(device)), run(*world, layout, model) {}
  HostDevice device;
  std::unique_ptr<World> world;
  TrainingRun run;
};

// The same on every rank?
void expect_common(const std::string& text) {
  for (const std::string& other : ranks::everyone().gather_bytes(text)) EXPECT_EQ(other, text);
}

// Two data ranks of every micro-batch size, compared with one process with the batch as a whole.
// Losses are masked unevenly, so that ranks and micro-batches have different numbers of tokens.
TEST(Gradients, AreTheSameForEveryFactoringOfTheGlobalBatch) {
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    const ModelConfig model = small(name);
    Alone alone({.name = "one process", .micro = test::kSamples}, model);
    const auto whole = alone.run.gradients();
    for (const std::int64_t micro : {1, 2, 4}) {
      TrainingRun run(ranks::world(), {.name = "DP 2", .mesh = mesh(1, 2, 1), .micro = micro},
                      model);
      EXPECT_LE(test::largest_difference(run.gradients(), whole), 1e-6)
          << name << ", micro " << micro;
    }
  }
}

TEST(NotFinite, InOneElementOfOneRankSkipsTheUpdateOnAll) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (const int culprit : {0, 1}) {
      const std::size_t turn = (std::isnan(bad) ? 0 : 2) + static_cast<std::size_t>(culprit);
      for (const RunLayout& layout : sampled(layouts(), 4, turn)) {
        SCOPED_TRACE(fmt::format("{}, {} on rank {}", layout.name, bad, culprit));
        TrainingRun run(ranks::world(), layout, small("gpt2-tiny"));
        run.step();
        const auto before = run.pieces();
        bool spoil = ranks::world().rank() == culprit;
        run.kernels().after = [&](const KernelCall& call) {
          const auto* gradient = std::get_if<LinearBackwardWeight>(&call);
          if (gradient == nullptr || !std::exchange(spoil, false)) return;
          gradient->dweight.data<float>()[gradient->dweight.elements() / 2] =
              static_cast<float>(bad);
        };
        const StepReport report = run.step();
        EXPECT_TRUE(report.skipped);
        EXPECT_FALSE(std::isfinite(report.grad_norm));
        EXPECT_EQ(run.pieces(), before);
        EXPECT_EQ(run.session().optimizer().steps(), 1);
        EXPECT_EQ(run.session().optimizer().skipped(), 1);
        const std::vector<std::string> names =
            run.session().optimizer().parameters_not_finite(run.machine().stream);
        ASSERT_EQ(names.size(), 1);
        expect_common(names[0]);
        EXPECT_FALSE(run.step().skipped);
        EXPECT_NE(run.pieces(), before);
      }
    }
  }
}

// A scale that overflows at first, and one constant: skipped steps and scales are those of one
// process, and losses near them: activations that cross ranks are rounded to half precision.
TEST(HalfPrecision, LearnsUnderAScaleThatAllRanksShare) {
  OptimizerOptions dynamic;
  dynamic.initial_loss_scale = 0x1p30;
  dynamic.loss_scale_window = 4;
  dynamic.hysteresis = 1;
  OptimizerOptions constant;
  constant.loss_scale = 1024;
  for (const OptimizerOptions& optimizer : {dynamic, constant}) {
    const ModelConfig model = small("llama-tiny", DType::kF16);
    constexpr int kSteps = 30;
    Alone alone({.name = "one process", .optimizer = optimizer}, model);
    std::vector<double> losses;
    std::vector<std::string> scales;
    const auto step = [](TrainingRun& run) {
      const StepReport report = run.step();
      return std::pair(report.loss, fmt::format("{} at {}{}\n", run.session().optimizer().skipped(),
                                                report.loss_scale, report.skipped ? " x" : ""));
    };
    for (int i = 0; i < kSteps; ++i) {
      const auto [loss, scale] = step(alone.run);
      losses.push_back(loss);
      scales.push_back(scale);
    }
    EXPECT_LT(losses.back(), losses.front() - 0.2);
    const bool adapts = !optimizer.loss_scale;
    EXPECT_EQ(alone.run.session().optimizer().skipped() > 5, adapts);
    EXPECT_EQ(alone.run.session().optimizer().loss_scale() == 1024, !adapts);
    for (const RunLayout& layout : sampled(layouts(optimizer), 4, adapts ? 1 : 2)) {
      SCOPED_TRACE(layout.name);
      TrainingRun run(ranks::world(), layout, model);
      std::string told;
      for (int i = 0; i < kSteps; ++i) {
        const auto [loss, scale] = step(run);
        EXPECT_NEAR(loss, losses[i], 0.02 * losses[i]) << "step " << i;
        told += scale;
      }
      expect_common(told);
      EXPECT_LT(
          std::abs(run.session().optimizer().skipped() - alone.run.session().optimizer().skipped()),
          3)
          << "a scale on the brink may be too much for one rounding and not for the other";
    }
  }
}

TEST(Muon, OnEveryLayoutFollowsOneProcess) {
  OptimizerOptions optimizer;
  optimizer.kind = OptimizerKind::kMuon;
  optimizer.muon.extra_scale = 0.2;
  optimizer.muon.nesterov = true;
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    const ModelConfig model = small(name);
    Alone alone({.name = "one process", .optimizer = optimizer}, model);
    const std::vector<double> losses = alone.run.losses(kPart);
    EXPECT_LT(losses.back(), losses.front());
    for (const RunLayout& layout : sampled(layouts(optimizer), 2, model.gated ? 0 : 1)) {
      SCOPED_TRACE(std::string(name) + ", " + layout.name);
      TrainingRun run(ranks::world(), layout, model);
      const std::vector<double> split = run.losses(kPart);
      for (int step = 0; step < kPart; ++step) {
        ASSERT_NEAR(split[step], losses[step], 1e-5 * losses[step]) << "step " << step;
      }
    }
  }
}

// A sign is not continuous: where the momentum of an element is nearly 0, a rounding changes it.
TEST(Cadam, OnEveryLayoutFollowsOneProcess) {
  OptimizerOptions optimizer;
  optimizer.kind = OptimizerKind::kCadam;
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    const ModelConfig model = small(name);
    Alone alone({.name = "one process", .optimizer = optimizer}, model);
    const std::vector<double> losses = alone.run.losses(kPart);
    EXPECT_LT(losses.back(), losses.front());
    for (const RunLayout& layout : sampled(layouts(optimizer), 2, model.gated ? 1 : 0)) {
      SCOPED_TRACE(std::string(name) + ", " + layout.name);
      TrainingRun run(ranks::world(), layout, model);
      const std::vector<double> split = run.losses(kPart);
      for (int step = 0; step < kPart; ++step) {
        ASSERT_NEAR(split[step], losses[step], 1e-5 * losses[step]) << "step " << step;
      }
    }
  }
}

// Where gradients differ in their last bits, second moments in bf16 are rounded by other numbers.
TEST(MomentsInBf16, OnEveryLayoutFollowOneProcess) {
  const OptimizerOptions optimizer{.first_moment = DType::kBF16, .second_moment = DType::kBF16};
  const ModelConfig model = small("llama-tiny");
  Alone alone({.name = "one process", .optimizer = optimizer}, model);
  Alone fp32({.name = "moments in fp32"}, model);
  const std::vector<double> losses = alone.run.losses(kPart);
  EXPECT_LT(losses.back(), losses.front());
  const std::vector<double> others = fp32.run.losses(kPart);
  EXPECT_NE(losses.back(), others.back());
  EXPECT_NEAR(losses.back(), others.back(), 1e-3 * losses.back());
  for (const RunLayout& layout : sampled(layouts(optimizer), 2, 1)) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    const std::vector<double> split = run.losses(kPart);
    for (int step = 0; step < kPart; ++step) {
      ASSERT_NEAR(split[step], losses[step], 1e-4 * losses[step]) << "step " << step;
    }
  }
}

struct Rule {
  const char* name;
  OptimizerOptions options;
  int sample;  // of layouts, by day
};

class WholeState : public testing::TestWithParam<Rule> {};

// Moments of two kinds, matrices on one rank each or cut, and rows that are cut: saved and loaded.
TEST_P(WholeState, OfStepsInTwoPartsIsThatOfStepsInOneToTheBit) {
  const auto& [name, optimizer, sample] = GetParam();
  const std::filesystem::path folder =
      std::filesystem::path(PITON_BINARY_DIR) / fmt::format("state_{}", name);
  if (ranks::world().rank() == 0) std::filesystem::remove_all(folder);
  ranks::everyone().barrier();
  const ModelConfig model = small("llama-tiny", DType::kBF16);
  std::string hash;
  for (const RunLayout& layout : sampled(layouts(optimizer), 2, sample)) {
    SCOPED_TRACE(layout.name);
    std::map<std::string, std::string> end;
    {
      TrainingRun run(ranks::world(), layout, model);
      run.losses(kPart);
      save_checkpoint(run.stored(), run.store(),
                      {folder, {.iteration = kPart, .consumed_samples = run.consumed()}, ""});
      run.losses(kPart);
      end = run.pieces();
    }
    TrainingRun again(ranks::world(), layout, model);
    again.set_consumed(
        load_checkpoint(find_checkpoint(folder), again.stored(), again.store()).consumed_samples);
    again.losses(kPart);
    EXPECT_EQ(again.pieces(), end);
    ranks::everyone().barrier();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, WholeState,
    testing::Values(
        Rule{"Muon",
             {.kind = OptimizerKind::kMuon, .muon = {.nesterov = false, .extra_scale = 0.2}},
             0},
        Rule{"CAdam", {.kind = OptimizerKind::kCadam}, 1},
        Rule{"MomentsInBf16", {.first_moment = DType::kBF16, .second_moment = DType::kBF16}, 1}),
    [](const auto& info) { return std::string(info.param.name); });

// The state of one layout, loaded by another, is the same state: saved again, it has the same
// hashes. From there on the losses are those of the first layout.
TEST_P(WholeState, GoesFromOneLayoutToAnother) {
  const auto& [name, optimizer, sample] = GetParam();
  const std::filesystem::path folder =
      std::filesystem::path(PITON_BINARY_DIR) / fmt::format("moved_{}", name);
  if (ranks::world().rank() == 0) std::filesystem::remove_all(folder);
  ranks::everyone().barrier();
  const ModelConfig model = small("llama-tiny", DType::kBF16);
  const std::vector<RunLayout> all = sampled(layouts(optimizer), 2, 1 - sample);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const RunLayout& from = all[i];
    const RunLayout& to = all[(i + 1) % all.size()];
    SCOPED_TRACE(from.name + " to " + to.name);
    TrainingRun first(ranks::world(), from, model);
    first.losses(4);
    const auto saved = save_checkpoint(
        first.stored(), first.store(),
        {folder / "first", {.iteration = 4, .consumed_samples = first.consumed()}, ""});
    TrainingRun second(ranks::world(), to, model);
    second.set_consumed(load_checkpoint(saved, second.stored(), second.store()).consumed_samples);
    const auto again = save_checkpoint(
        second.stored(), second.store(),
        {folder / "second", {.iteration = 4, .consumed_samples = second.consumed()}, ""});
    EXPECT_EQ(weights_hash(saved), weights_hash(again));
    EXPECT_EQ(optimizer_hash(saved), optimizer_hash(again));
    const std::vector<double> wanted = first.losses(3);
    const std::vector<double> got = second.losses(3);
    for (int step = 0; step < 3; ++step) EXPECT_NEAR(got[step], wanted[step], 0.01 * wanted[step]);
    ranks::everyone().barrier();
  }
}

TEST(Recomputation, OfWhateverChangesNoBitAndKeepsLess) {
  struct Kind {
    const char* name;
    RecomputeRules rules;
    std::string_view call = AttentionForward::kName;  // that runs more often
  };
  const RecomputedParts small_parts{.norms = true, .activation = true};
  const std::vector<Kind> kinds{
      {"every layer", {RecomputeGranularity::kFull}},
      {"groups of two", {RecomputeGranularity::kFull, /*block=*/false, 2}},
      {"the first layer", {RecomputeGranularity::kFull, /*block=*/true, 1}},
      {"attention", {RecomputeGranularity::kSelective}},
      {"norms",
       {.granularity = RecomputeGranularity::kSelective, .parts = {.norms = true}},
       NormForward::kName},
      {"the gate",
       {.granularity = RecomputeGranularity::kSelective, .parts = {.activation = true}},
       ActivationForward::kName},
      {"the MLP",
       {.granularity = RecomputeGranularity::kSelective, .parts = {.norms = true, .mlp = true}},
       ActivationForward::kName},
      {"one layer of the first stage, parts of the others",
       {.granularity = RecomputeGranularity::kFull,
        .block = true,
        .parts = small_parts,
        .layers_of_stage = {1, 0}},
       NormForward::kName},
      {"one layer, and the norms of the one after it",
       {.granularity = RecomputeGranularity::kFull,
        .block = true,
        .parts = small_parts,
        .norm_layers = 1,
        .activation_layers = 0},
       NormForward::kName}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ModelConfig model = small("llama-tiny", dtype);
    model.layers = 4;
    std::size_t turn = dtype == DType::kF32 ? 0 : 1;
    for (RunLayout layout : sampled(layouts(), 2, turn)) {
      TrainingRun plain(ranks::world(), layout, model);
      const std::vector<double> losses = plain.losses(3);
      const auto end = plain.pieces();
      const auto activations = [](TrainingRun& run) {
        return run.arena().counts().peak_bytes[static_cast<int>(MemoryKind::kActivations)];
      };
      for (const auto& [name, rules, call] : sampled(kinds, 2, turn++)) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", layout.name, piton::name(dtype), name));
        layout.rules = rules;
        TrainingRun run(ranks::world(), layout, model);
        EXPECT_EQ(run.losses(3), losses);
        EXPECT_EQ(run.pieces(), end);
        // A group that is the whole stage is as large, when it runs again, as it was.
        const bool whole = rules.granularity == RecomputeGranularity::kFull && !rules.block &&
                           rules.layers == model.layers / layout.mesh[Axis::kPipeline];
        if (whole) {
          EXPECT_LE(activations(run), activations(plain));
        } else {
          EXPECT_LT(activations(run), activations(plain));
        }
        EXPECT_GT(run.calls().of(call).calls, plain.calls().of(call).calls);
      }
    }
  }
}

// Each tensor rank keeps its part of what layers were given, and gathers the others'.
TEST(Recomputation, WithItsInputsDividedOverTensorRanksKeepsHalfOfThem) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const char* family : {"gpt2-tiny", "llama-tiny"}) {
      for (const std::int64_t group : {1, 2}) {
        const bool half = ((dtype == DType::kF32) == (*family == 'g')) == (group == 1);
        if (half && !test::nightly()) continue;
        SCOPED_TRACE(fmt::format("{}, {}, groups of {}", family, piton::name(dtype), group));
        ModelConfig model = small(family, dtype);
        model.layers = test::nightly() ? 16 : 8;
        RunLayout layout{.name = "TP 2", .mesh = mesh(2, 1, 1)};
        layout.rules = {.granularity = RecomputeGranularity::kFull, .layers = group};
        TrainingRun whole(ranks::world(), layout, model);
        layout.rules.distributed = true;
        TrainingRun parts(ranks::world(), layout, model);
        EXPECT_EQ(parts.losses(3), whole.losses(3));
        EXPECT_EQ(parts.pieces(), whole.pieces());
        const auto activations = [](TrainingRun& run) {
          return run.arena().counts().peak_bytes[static_cast<int>(MemoryKind::kActivations)];
        };
        // At the peak all inputs of a micro-batch are kept, and one of them is whole.
        const std::int64_t input = 2 * test::kSequence * model.hidden * size_bytes(dtype);
        const std::int64_t kept = model.layers / group;
        EXPECT_GE(activations(whole) - activations(parts), (kept - 2) * input / 2);
        EXPECT_LE(activations(whole) - activations(parts), kept * input / 2);
      }
    }
  }
}

}  // namespace
}  // namespace piton::ranks::training_step_test
