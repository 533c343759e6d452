// A reward model has the rewards, losses and gradients of Transformers and TRL, also with an
// adapter of PEFT (tests/golden/rewards, made by tools/oracle/rewards.py in float64).
#include "preferences/reward_objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "model/label_head.h"
#include "support/errors.h"
#include "support/golden_lora.h"
#include "support/preference_batches.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using test::HostMachine;
using test::PreferenceRows;

fs::path golden_rewards(const char* name) {
  return fs::path(PITON_SOURCE_DIR) / "tests/golden/rewards" / name;
}

// With an id behind each text, which is no token of it.
std::vector<test::AnswerText> reward_texts(const SafetensorsFile& expected) {
  const Tensor ids = expected.tensor("ids");
  std::vector<test::AnswerText> texts(static_cast<std::size_t>(ids.dim(0)));
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    if (ids.data<std::int32_t>()[i] < 0) continue;
    texts[static_cast<std::size_t>(i / ids.dim(1))].ids.push_back(ids.data<std::int32_t>()[i]);
  }
  for (test::AnswerText& text : texts) {
    text.ids.push_back(0);
    text.labels.assign(text.ids.size(), kNoLabel);
  }
  return texts;
}

std::vector<double> rewards_of(Session& session, const std::vector<test::AnswerText>& texts) {
  std::vector<MicroBatch> batches =
      test::preference_batch(texts, false, {.sequence = 56, .micro = 1});
  std::vector<double> rewards;
  for (MicroBatch& batch : batches) {
    for (const Answer& answer : batch.answers)
      batch.labels[static_cast<std::size_t>(answer.end - 1)] = kRewardLabel;
    const auto found = session.token_losses({batch}, {});
    for (const Answer& answer : batch.answers)
      rewards.push_back(found[0][static_cast<std::size_t>(answer.end - 1)]);
  }
  return rewards;
}

double length_of_gradient(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += one * one;
  return std::sqrt(sum);
}

TEST(RewardObjective, HasTheRewardsLossesAndGradientsOfTheOracle) {
  const SafetensorsFile expected(golden_rewards("qwen2") / "expected.safetensors");
  const auto texts = reward_texts(expected);
  HfSource base(golden_rewards("qwen2"));
  ASSERT_TRUE(base.model().gives_rewards());
  TempFolder folder;
  fs::copy_file(golden_rewards("qwen2") / "config.json", folder / "config.json");
  fs::copy_file(golden_rewards("qwen2") / "gradients.safetensors", folder / "model.safetensors");
  HfSource wanted(folder.path());
  HostMachine machine;
  Mesh mesh(*machine.world, MeshSizes{});
  Session session(machine.machine, mesh, {.model = base.model()});
  load_weights(base, {.parameters = session.parameters(), .sharded = &session.sharded()},
               {mesh, machine.device, machine.arena, *machine.stream});
  session.publish_values();
  EXPECT_LT(
      test::largest_distance(rewards_of(session, texts), test::values(expected.tensor("rewards"))),
      1e-5);
  const PreferenceOptions options{
      .stage = TrainingStage::kRm, .reward_margin = 0.1, .center_rewards = 0.01};
  RewardObjective objective(options);
  session.set_objective(&objective);
  const double loss = test::value_at(expected.tensor("loss"), 0);
  const auto figures = test::values(expected.tensor("figures"));
  for (const PreferenceRows& rows : {PreferenceRows{.sequence = 56},
                                     {.sequence = 56, .micro = 3},
                                     {.sequence = 130, .packed = true}}) {
    SCOPED_TRACE(fmt::format("rows of {}, {} at once", rows.sequence, rows.micro));
    const auto batches = test::preference_batch(texts, false, rows);
    const StepReport report = session.gradients(batches, 0);
    EXPECT_EQ(report.loss_tokens, 3);
    EXPECT_NEAR(report.loss, loss, 1e-5 * loss);
    ASSERT_EQ(report.figures.size(), figures.size());
    for (std::size_t i = 0; i < figures.size(); ++i)
      EXPECT_NEAR(report.figures[i].mean(), figures[i], 1e-5) << report.figures[i].name;
    const Session::Evaluation evaluation = session.evaluate(batches);
    EXPECT_EQ(evaluation.loss_sum / evaluation.loss_tokens, report.loss);
    std::size_t compared = 0;
    for (const Parameter* parameter : session.parameters()) {
      for (const Piece& piece : parameter->pieces) {
        const std::vector<double> ours =
            test::values(parameter->gradient.slice(0, piece.local_row, piece.extent[0]));
        const std::vector<double> right = test::values_of(
            wanted, {.name = piece.name, .dtype = DType::kF32, .shape = piece.global});
        // The gradient of a bias of keys is 0 but for rounding.
        EXPECT_LE(test::largest_distance(ours, right),
                  1e-5 * std::max(length_of_gradient(right), 1e-2))
            << piece.name;
        ++compared;
      }
    }
    EXPECT_EQ(compared, wanted.tensors(TensorKind::kWeight).size());
  }
}

TEST(RewardObjective, AnAdapterOfPeftGivesItsRewards) {
  const SafetensorsFile expected(golden_rewards("qwen2") / "expected.safetensors");
  HfSource base(golden_rewards("qwen2"));
  ASSERT_EQ(labels_of_adapter(golden_rewards("qwen2_lora")), 1);
  EXPECT_EQ(labels_of_adapter(test::lora_folder("qwen2")), 0);
  PeftSource adapter(golden_rewards("qwen2_lora"), base.model(), hf_family(base.config()));
  EXPECT_THAT(adapter.adapters().trained, testing::ElementsAre(kRewardTensor));
  HostMachine machine;
  Mesh mesh(*machine.world, MeshSizes{});
  Session session(
      machine.machine, mesh,
      {.model = base.model(), .use = SessionUse::kInference, .adapters = adapter.adapters()});
  test::load_lora(session, base, adapter, machine);
  EXPECT_LT(test::largest_distance(rewards_of(session, reward_texts(expected)),
                                   test::values(expected.tensor("adapted"))),
            1e-5);
}

TEST(RewardObjective, RefusesAnswersThatAreJudgedAlone) {
  HfSource base(golden_rewards("qwen2"));
  HostMachine machine;
  Mesh mesh(*machine.world, MeshSizes{});
  Session session(machine.machine, mesh, {.model = base.model(), .use = SessionUse::kInference});
  auto batches =
      test::preference_batch(test::answer_texts(131, 2), /*judged=*/true, {.sequence = 56});
  RewardObjective objective({.stage = TrainingStage::kRm});
  EXPECT_EQ(message_of(Fault::kData, [&] { objective.weigh(session, batches, false); }),
            "--stage rm: wanted pairs of answers, got judged answers; give other data or another "
            "--stage");
}

}  // namespace
}  // namespace piton
