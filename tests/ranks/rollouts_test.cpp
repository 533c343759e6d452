// ranks: 2 4
// Policy gradients under any layout have the losses, figures and values of one process: with the
// base under the adapters as the reference, and with a second model. Critics too.
#include <string>
#include <vector>

#include "data/samples/batch_source.h"
#include "model/label_head.h"
#include "model/lora/lora_options.h"
#include "ranks/setting.h"
#include "rollouts/answer_divergences.h"
#include "rollouts/answer_losses.h"
#include "rollouts/rollout_objective.h"
#include "rollouts/token_advantages.h"
#include "rollouts/value_objective.h"
#include "support/run_session.h"

namespace piton::ranks::rollouts_test {

namespace {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;

constexpr int kSteps = 3;
constexpr std::int64_t kAnswers = 8;
constexpr std::int64_t kAtOnce = 2;

std::vector<RunLayout> layouts(int ranks) {
  if (ranks == 2) {
    return {
        {.name = "TP 2", .mesh = mesh(2, 1, 1)},
        {.name = "PP 2", .mesh = mesh(1, 1, 2)},
        {.name = "PP 2, ZB-H1", .mesh = mesh(1, 1, 2), .schedule = ScheduleKind::kZeroBubbleH1},
        {.name = "DP 2", .mesh = mesh(1, 2, 1)},
        {.name = "ZeRO-2", .mesh = mesh(1, 2, 1), .zero = 2},
        {.name = "ZeRO-3", .mesh = mesh(1, 2, 1), .zero = 3},
    };
  }
  return {
      {.name = "TP 2 x PP 2", .mesh = mesh(2, 1, 2)},
      {.name = "TP 2 x DP 2, ZeRO-3", .mesh = mesh(2, 2, 1), .zero = 3},
      {.name = "PP 2 x DP 2, ZeRO-1", .mesh = mesh(1, 2, 2), .zero = 1},
  };
}

ModelConfig small_policy() {
  ModelConfig model = preset("llama-tiny");
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

// Answers of other lengths, one of them without a label.
std::vector<MicroBatch> fixed_answers(int rank, int ranks) {
  std::vector<MicroBatch> batches;
  BatchSource::for_each_micro_batch(
      {.global_batch = kAnswers, .micro_batch = kAtOnce, .rank = rank, .ranks = ranks},
      [&](std::int64_t first, std::int64_t size) {
        MicroBatch& batch = batches.emplace_back();
        batch.samples = size;
        batch.sequence = test::kSequence;
        batch.sample_index = first;
        for (std::int64_t i = first; i < first + size; ++i) {
          const std::int64_t end = i == 5 ? 0 : 6 + 2 * i % 9;
          for (std::int64_t at = 0; at < batch.sequence; ++at) {
            const bool taught = at >= 4 && at < end;
            batch.tokens.push_back(static_cast<std::int32_t>((17 * i + 5 * at + 3) % 101));
            batch.labels.push_back(taught ? static_cast<std::int32_t>((17 * i + 5 * at + 8) % 101)
                                          : kNoLabel);
            batch.loss_mask.push_back(taught ? 0.5F - 0.2F * static_cast<float>(i % 4) : 0.0F);
            batch.positions.push_back(static_cast<std::int32_t>(at));
          }
        }
      });
  return batches;
}

// The losses and figures of some steps.
std::vector<double> numbers_of(World& world, RunLayout layout, const PolicyLossRules& rules,
                               bool adapters) {
  const bool several = rules.clip.above != PolicyClip().above;
  const ModelConfig model = small_policy();
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
  if (!adapters) {
    SessionSettings settings = session.settings();
    settings.use = SessionUse::kInference;
    settings.seed = 12;
    reference = std::make_unique<Session>(run.machine(), session.mesh(), settings);
    reference->initialize();
  }
  RolloutObjective objective(rules, reference.get());
  session.set_objective(&objective);
  const auto batches =
      fixed_answers(session.mesh().coordinate(Axis::kData), session.mesh().size(Axis::kData));
  // The last rules are of several updates of one batch.
  const std::vector<std::vector<MicroBatch>> parts = {batches};
  if (several) objective.begin_batch(parts);
  std::vector<double> numbers;
  for (int step = 0; step < kSteps; ++step) {
    objective.report({{"reward", 3, 4}});
    const StepReport report = session.train_step(batches, several ? 0 : step * kAnswers, 3e-3);
    numbers.push_back(report.loss);
    numbers.push_back(report.loss_tokens);
    numbers.push_back(report.grad_norm);
    for (const ObjectiveFigure& figure : report.figures) numbers.push_back(figure.mean());
  }
  EXPECT_EQ(numbers.size(), kSteps * (4 + (rules.clip.beta > 0 ? 1 : 0) + (several ? 1 : 0)));
  return numbers;
}

TEST(Rollouts, HaveTheLossesAndFiguresOfOneProcess) {
  using K = PolicyLossKind;
  constexpr RatioLevel kToken = RatioLevel::kToken;
  for (const PolicyLossRules& rules :
       {PolicyLossRules{K::kGrpo, {.beta = 0.2}, kToken, 16},
        {K::kDrGrpo, {}, kToken, 16},
        {K::kDapo, {.beta = 0.2}, kToken, 16},
        {K::kBnpo, {}, kToken, 16},
        {K::kCispo, {}, kToken, 16},
        {K::kSapo, {}, kToken, 16},
        {K::kRloo, {.below = 0.01, .above = 0.02}, kToken, 16},
        {K::kDapo, {.below = 0.01, .above = 0.02, .beta = 0.1}, kToken, 16},
        {K::kGrpo, {.below = 0.01, .above = 0.02}, RatioLevel::kSequence, 16}}) {
    for (const bool adapters : {true, false}) {
      HostDevice device;
      const auto world = make_single_world(device);
      const auto alone = numbers_of(*world, {.name = "one process"}, rules, adapters);
      for (const RunLayout& layout : layouts(ranks::world().size())) {
        SCOPED_TRACE(fmt::format("{}, loss {}, {}", layout.name, static_cast<int>(rules.kind),
                                 adapters ? "adapters" : "whole model"));
        const auto numbers = numbers_of(ranks::world(), layout, rules, adapters);
        ASSERT_EQ(numbers.size(), alone.size());
        for (std::size_t i = 0; i < alone.size(); ++i)
          EXPECT_NEAR(numbers[i], alone[i], 2e-5 * (1 + std::abs(alone[i]))) << i;
      }
    }
  }
}

std::vector<double> divergences_of(World& world, const RunLayout& layout) {
  TrainingRun run(world, layout, small_policy());
  Session& session = run.session();
  SessionSettings settings = session.settings();
  settings.use = SessionUse::kInference;
  settings.seed = 12;
  Session reference(run.machine(), session.mesh(), settings);
  reference.initialize();
  const std::vector<std::vector<MicroBatch>> parts = {
      fixed_answers(session.mesh().coordinate(Axis::kData), session.mesh().size(Axis::kData))};
  const auto everyone = make_group_of_all(world, "divergences");
  return answer_divergences({session, &reference}, parts, kAnswers, *everyone);
}

TEST(AnswerDivergences, AreThoseOfOneProcess) {
  HostDevice device;
  const auto world = make_single_world(device);
  const std::vector<double> alone = divergences_of(*world, {.name = "one process"});
  EXPECT_GT(std::abs(alone[0]), 1e-3);
  for (const RunLayout& layout : layouts(ranks::world().size())) {
    SCOPED_TRACE(layout.name);
    const std::vector<double> found = divergences_of(ranks::world(), layout);
    ASSERT_EQ(found.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_NEAR(found[i], alone[i], 2e-5 * (1 + std::abs(alone[i]))) << i;
  }
}

// Values, advantages and returns of a batch, and the losses of a critic that learns them.
std::vector<double> numbers_of_critic(World& world, const RunLayout& layout) {
  ModelConfig model = small_policy();
  set_labels(model, {});
  TrainingRun run(world, layout, model);
  Session& session = run.session();
  auto batches =
      fixed_answers(session.mesh().coordinate(Axis::kData), session.mesh().size(Axis::kData));
  std::vector<std::vector<MicroBatch>> read = {batches};
  read_values(read[0]);
  const auto everyone = make_group_of_all(world, "critic");
  std::vector<ValuedAnswer> answers;
  for (const auto& values : answer_losses(session, read, {}, kAnswers, *everyone)) {
    answers.push_back({.policy = std::vector<double>(values.size()),
                       .values = values,
                       .reward = answers.size() % 3 == 0 ? 1.0 : -0.5});
  }
  const TokenAdvantages found = token_advantages(answers, {});
  std::vector<double> numbers;
  ValueTargets targets{.wanted = found.returns};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    targets.written.push_back(answers[i].values);
    for (const std::vector<double>& each :
         {answers[i].values, found.advantages[i], found.returns[i]})
      numbers.insert(numbers.end(), each.begin(), each.end());
  }
  ValueObjective objective({.clip = 0.05});
  objective.begin_batch(targets);
  session.set_objective(&objective);
  for (int step = 0; step < kSteps; ++step) {
    const StepReport report = session.train_step(batches, 0, 3e-3);
    numbers.push_back(report.loss);
    numbers.push_back(report.grad_norm);
    for (const ObjectiveFigure& figure : report.figures) numbers.push_back(figure.mean());
  }
  return numbers;
}

TEST(Critics, HaveTheNumbersOfOneProcess) {
  HostDevice device;
  const auto world = make_single_world(device);
  const std::vector<double> alone = numbers_of_critic(*world, {.name = "one process"});
  EXPECT_GT(alone.back(), 0);  // tokens are clipped
  for (const RunLayout& layout : layouts(ranks::world().size())) {
    SCOPED_TRACE(layout.name);
    const std::vector<double> found = numbers_of_critic(ranks::world(), layout);
    ASSERT_EQ(found.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_NEAR(found[i], alone[i], 2e-5 * (1 + std::abs(alone[i]))) << i;
  }
}

}  // namespace
}  // namespace piton::ranks::rollouts_test
