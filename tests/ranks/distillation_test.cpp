// ranks: 2 4
// Distillation under any layout has the losses, divergences and gradient norms of one process.
#include <string>
#include <vector>

#include "api/planning.h"
#include "model/lora/lora_options.h"
#include "ranks/setting.h"
#include "support/run_session.h"

namespace piton::ranks::distillation_test {

namespace {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;

constexpr int kSteps = 4;

std::vector<RunLayout> layouts(int ranks) {
  const auto zb = ScheduleKind::kZeroBubbleH1;
  if (ranks == 2) {
    return {
        {.name = "TP 2", .mesh = mesh(2, 1, 1)},
        {.name = "TP 2 + SP, recompute",
         .mesh = mesh(2, 1, 1),
         .sequence_parallel = true,
         .recompute = true},
        {.name = "PP 2", .mesh = mesh(1, 1, 2)},
        {.name = "PP 2, ZB-H1", .mesh = mesh(1, 1, 2), .schedule = zb},
        {.name = "PP 2, a V", .mesh = mesh(1, 1, 2), .own_schedule = test::letter_v(4)},
        {.name = "DP 2", .mesh = mesh(1, 2, 1)},
        {.name = "ZeRO-2", .mesh = mesh(1, 2, 1), .zero = 2},
        {.name = "ZeRO-3", .mesh = mesh(1, 2, 1), .zero = 3},
    };
  }
  return {
      {.name = "TP 2 x PP 2 + SP", .mesh = mesh(2, 1, 2), .sequence_parallel = true},
      {.name = "TP 2 x DP 2, ZeRO-3", .mesh = mesh(2, 2, 1), .zero = 3},
      {.name = "PP 2 x DP 2, ZeRO-1", .mesh = mesh(1, 2, 2), .zero = 1},
  };
}

ModelConfig small() {
  ModelConfig model = preset("llama-tiny");
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

// Losses, norms and divergences of some steps. The teacher is wider than the model.
std::vector<double> numbers_of(World& world, RunLayout layout, bool adapters) {
  const ModelConfig model = small();
  if (adapters) {
    LoraOptions lora;
    lora.target_modules = {"all-linear"};
    lora.rank = 4;
    layout.adapters = lora.resolve(model);
  }
  TrainingRun run(world, layout, model);
  Session& session = run.session();
  SessionSettings settings = session.settings();
  settings.use = SessionUse::kInference;
  settings.adapters = {};
  settings.seed = 12;
  settings.model.ffn_hidden += 64;
  Session teacher(run.machine(), session.mesh(), settings);
  teacher.initialize();
  session.set_teaching({.teacher = &teacher, .temperature = 1.5, .weight = 0.6});
  std::vector<double> numbers;
  for (int step = 0; step < kSteps; ++step) {
    const StepReport report = run.step();
    EXPECT_EQ(report.figures.size(), 1U);
    EXPECT_GT(report.figures[0].mean(), 0);
    numbers.insert(numbers.end(), {report.loss, report.grad_norm, report.figures[0].mean()});
  }
  return numbers;
}

// `plan` counts the teacher: its weights, and what it computes in a step.
TEST(Distillation, TakesTheMemoryThatThePlanPredicts) {
  for (const RunLayout& layout : layouts(ranks::world().size())) {
    if (layout.own_schedule) continue;
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, small());
    Session& session = run.session();
    SessionSettings settings = session.settings();
    settings.use = SessionUse::kInference;
    settings.model.ffn_hidden += 64;
    Session teacher(run.machine(), session.mesh(), settings);
    teacher.initialize();
    session.set_teaching({.teacher = &teacher});
    run.losses(3);
    const RunPlan plan{.mesh = layout.mesh,
                       .sequence = test::kSequence,
                       .micro_batch = 2,
                       .global_batch = test::kSamples,
                       .micro_batches = session.settings().micro_batches,
                       .session = session.settings(),
                       .teacher = settings};
    const MemoryCounts planned = estimate_layout(plan, run.machine())[ranks::world().rank()].memory;
    const auto taken = static_cast<double>(run.arena().counts().peak_total_bytes);
    EXPECT_NEAR(static_cast<double>(planned.peak_total_bytes), taken, 0.05 * taken);
  }
}

TEST(Distillation, HasTheLossesOfOneProcess) {
  for (const bool adapters : {false, true}) {
    HostDevice device;
    const auto world = make_single_world(device);
    const std::vector<double> alone = numbers_of(*world, {.name = "one process"}, adapters);
    for (const RunLayout& layout : layouts(ranks::world().size())) {
      SCOPED_TRACE(layout.name + (adapters ? ", adapters" : ", whole model"));
      const std::vector<double> numbers = numbers_of(ranks::world(), layout, adapters);
      ASSERT_EQ(numbers.size(), alone.size());
      for (std::size_t i = 0; i < alone.size(); ++i)
        EXPECT_NEAR(numbers[i], alone[i], 2e-5 * (1 + std::abs(alone[i]))) << i;
    }
  }
}

}  // namespace
}  // namespace piton::ranks::distillation_test
