// ranks: 2 4
// Preferences under any layout have the losses, figures and values of one process: with the base
// under the adapters as the reference, and with a second model. So do reward models.
#include <string>
#include <vector>

#include "model/lora/lora_options.h"
#include "preferences/preference_objective.h"
#include "preferences/reward_objective.h"
#include "ranks/setting.h"
#include "support/preference_batches.h"
#include "support/run_session.h"

namespace piton::ranks::preferences_test {

namespace {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;

constexpr int kSteps = 4;
constexpr int kPairs = 8;

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

ModelConfig small(bool rewards) {
  ModelConfig model = preset("llama-tiny");
  model.labels = rewards ? 1 : 0;
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

// The losses and figures of some steps, and of an evaluation after them.
std::vector<double> numbers_of(World& world, RunLayout layout, const PreferenceOptions& options,
                               bool adapters) {
  const bool rewards = options.stage == TrainingStage::kRm;
  const ModelConfig model = small(rewards);
  if (adapters) {
    LoraOptions lora;
    lora.target_modules = {"all-linear"};
    lora.rank = 4;
    lora.dropout = 0.2;
    layout.adapters = lora.resolve(model);
  }
  TrainingRun run(world, layout, model);
  Session& session = run.session();
  std::unique_ptr<Session> reference;
  if (!adapters && options.has_reference()) {
    SessionSettings settings = session.settings();
    settings.use = SessionUse::kInference;
    settings.seed = 12;
    reference = std::make_unique<Session>(run.machine(), session.mesh(), settings);
    reference->initialize();
  }
  PreferenceObjective preferences(options, reference.get());
  RewardObjective of_rewards(options);
  session.set_objective(rewards ? static_cast<Objective*>(&of_rewards) : &preferences);
  const auto batches =
      test::preference_batch(test::answer_texts(model.vocabulary, kPairs), !options.by_pairs(),
                             {.sequence = test::kSequence,
                              .micro = 2,
                              .rank = session.mesh().coordinate(Axis::kData),
                              .ranks = session.mesh().size(Axis::kData)});
  std::vector<double> numbers;
  for (int step = 0; step < kSteps; ++step) {
    const StepReport report = session.train_step(batches, step * kPairs, 3e-3);
    EXPECT_EQ(report.loss_tokens, kPairs);
    numbers.push_back(report.loss);
    numbers.push_back(report.grad_norm);
    for (const ObjectiveFigure& figure : report.figures) numbers.push_back(figure.mean());
  }
  const Session::Evaluation evaluation = session.evaluate(batches);
  numbers.push_back(evaluation.loss_sum / evaluation.loss_tokens);
  for (const ObjectiveFigure& figure : evaluation.figures) numbers.push_back(figure.mean());
  return numbers;
}

class Preferences : public testing::TestWithParam<TrainingStage> {};

TEST_P(Preferences, HaveTheLossesAndFiguresOfOneProcess) {
  const PreferenceOptions options{.stage = GetParam()};
  for (const bool adapters : {true, false}) {
    HostDevice device;
    const auto world = make_single_world(device);
    const std::vector<double> alone =
        numbers_of(*world, {.name = "one process"}, options, adapters);
    for (const RunLayout& layout : layouts(ranks::world().size())) {
      SCOPED_TRACE(layout.name + (adapters ? ", adapters" : ", whole model"));
      const std::vector<double> numbers = numbers_of(ranks::world(), layout, options, adapters);
      ASSERT_EQ(numbers.size(), alone.size());
      for (std::size_t i = 0; i < alone.size(); ++i)
        EXPECT_NEAR(numbers[i], alone[i], 2e-5 * (1 + std::abs(alone[i]))) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, Preferences, testing::ValuesIn(test::kPreferenceStages),
                         [](const auto& info) { return name(info.param); });
INSTANTIATE_TEST_SUITE_P(RewardModel, Preferences, testing::Values(TrainingStage::kRm),
                         [](const auto& info) { return name(info.param); });

}  // namespace
}  // namespace piton::ranks::preferences_test
