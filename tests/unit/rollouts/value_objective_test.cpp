// Advantages of tokens, losses, and gradients of a policy and its critic over two updates: those of
// TRL's PPOTrainer (tests/golden/ppo, made by tools/oracle/ppo.py in float64).
#include "rollouts/value_objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "kernels/reference/kernels.h"
#include "model/families.h"
#include "model/label_head.h"
#include "policy_texts.h"
#include "rollouts/answer_losses.h"
#include "rollouts/rollout_objective.h"
#include "rollouts/token_advantages.h"
#include "support/golden_lora.h"
#include "support/session/central_difference.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using test::HostMachine;
using test::LoraFiles;

constexpr std::int64_t kRow = 32;
constexpr double kPolicyRate = 0.0005;
constexpr double kCriticRate = 0.1;

fs::path golden_folder_of_ppo() { return fs::path(PITON_SOURCE_DIR) / "tests/golden/ppo"; }

std::vector<MicroBatch> rows_of_golden_texts(std::size_t micro) {
  const auto texts = test::golden_policy_texts(
      SafetensorsFile(test::golden_folder_of_policies() / "batch.safetensors"));
  return test::policy_batches(texts, std::vector<double>(texts.size(), 0), kRow, micro);
}

std::vector<double> joined(const std::vector<std::vector<double>>& lists, double factor = 1) {
  std::vector<double> all;
  for (const auto& list : lists) {
    for (const double one : list) all.push_back(factor * one);
  }
  return all;
}

void set_advantages(const std::vector<std::vector<double>>& advantages,
                    std::vector<MicroBatch>& batches) {
  for (MicroBatch& batch : batches) {
    for (std::int64_t sample = 0; sample < batch.samples; ++sample) {
      auto next = advantages[static_cast<std::size_t>(batch.sample_index + sample)].begin();
      for (std::int64_t row = sample * kRow; row < (sample + 1) * kRow; ++row) {
        const auto at = static_cast<std::size_t>(row);
        if (batch.labels[at] >= 0) batch.loss_mask[at] = static_cast<float>(*next++);
      }
    }
  }
}

double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += one * one;
  return std::sqrt(sum);
}

void expect_gradients(Session& session, TensorSource& wanted, double bound) {
  std::size_t compared = 0;
  for (const Parameter* parameter : session.parameters()) {
    if (!parameter->trainable) continue;
    for (const Piece& piece : parameter->pieces) {
      const auto ours =
          test::values(parameter->gradient.slice(0, piece.local_row, piece.extent[0]));
      const auto right = test::values_of(
          wanted, {.name = piece.name, .dtype = DType::kF32, .shape = piece.global});
      // The gradient of a bias of keys is 0 but for rounding.
      EXPECT_LE(test::largest_distance(ours, right), bound * std::max(norm_of(right), 1e-2))
          << piece.name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, wanted.tensors(TensorKind::kWeight).size());
}

// Those of a policy with an adapter, the base as its reference, and a critic.
struct PpoModels {
  PpoModels() : mesh(*machine.world, MeshSizes{}) {
    OptimizerOptions sgd{.kind = OptimizerKind::kSgd, .sgd_momentum = 0, .weight_decay = 0};
    sgd.clip_grad = 0;
    policy = std::make_unique<Session>(machine.machine, mesh,
                                       SessionSettings{.model = files.model(),
                                                       .optimizer_options = sgd,
                                                       .adapters = files.adapter.adapters()});
    test::load_lora(*policy, files.base, files.adapter, machine);
    critic = std::make_unique<Session>(
        machine.machine, mesh,
        SessionSettings{.model = reward_model.model(), .optimizer_options = sgd});
    load_weights(reward_model, {.parameters = critic->parameters(), .sharded = &critic->sharded()},
                 {mesh, machine.device, machine.arena, *machine.stream});
    critic->publish_values();
  }

  // Of the answers, as Rollouts computes them.
  std::vector<ValuedAnswer> valued(const std::vector<MicroBatch>& batches) {
    const std::vector<std::vector<MicroBatch>> parts = {batches};
    std::vector<std::vector<MicroBatch>> read = parts;
    read_values(read[0]);
    const auto everyone = make_group_of_all(*machine.world, "test");
    const auto losses = answer_losses(*policy, parts, {}, 6, *everyone);
    const auto reference = answer_losses(*policy, parts, {.adapters = false}, 6, *everyone);
    const auto values = answer_losses(*critic, read, {}, 6, *everyone);
    const SafetensorsFile file(fs::path(PITON_SOURCE_DIR) /
                               "tests/golden/rollouts/batch.safetensors");
    const auto rewards = test::values(file.tensor("rewards"));
    std::vector<ValuedAnswer> answers;
    for (std::size_t i = 0; i < rewards.size(); ++i) {
      answers.push_back({.policy = joined({losses[i]}, -1),
                         .reference = joined({reference[i]}, -1),
                         .values = values[i],
                         .reward = rewards[i]});
    }
    return answers;
  }

  HostMachine machine;
  LoraFiles files{"qwen2"};
  HfSource reward_model{fs::path(PITON_SOURCE_DIR) / "tests/golden/rewards/qwen2"};
  Mesh mesh;
  std::unique_ptr<Session> policy;
  std::unique_ptr<Session> critic;
};

TEST(TokenAdvantages, AreThoseOfTheOracle) {
  const SafetensorsFile expected(golden_folder_of_ppo() / "expected.safetensors");
  PpoModels models;
  const auto answers = models.valued(rows_of_golden_texts(2));
  const std::map<std::string, TokenRewardRules> cases = {
      {"usual", {}},
      {"other", {.divergence_weight = 0.3, .gamma = 0.9, .lambda = 0.7, .whitens_rewards = true}}};
  for (const auto& [name, rules] : cases) {
    const TokenAdvantages found = token_advantages(answers, rules);
    EXPECT_LT(test::largest_distance(joined(found.advantages),
                                     test::values(expected.tensor("advantages." + name))),
              3e-5)
        << name;
    EXPECT_LT(test::largest_distance(joined(found.returns),
                                     test::values(expected.tensor("returns." + name))),
              3e-5)
        << name;
    const auto divergences = test::values(expected.tensor("divergence"));
    EXPECT_EQ(found.tokens, static_cast<double>(divergences.size()));
    double sum = 0;
    for (const double one : divergences) sum += one;
    EXPECT_NEAR(found.divergence, sum, 1e-4);
  }
}

TEST(TokenAdvantages, AnswersWithoutTokensChangeNothing) {
  const ValuedAnswer answer{.policy = {-1, -2}, .values = {0.5, 0.25}, .reward = 1};
  const TokenAdvantages one = token_advantages(std::vector{answer}, {});
  const TokenAdvantages two = token_advantages(std::vector{ValuedAnswer{.reward = 5}, answer}, {});
  EXPECT_THAT(two.advantages, testing::ElementsAre(testing::IsEmpty(), one.advantages[0]));
  EXPECT_THAT(two.returns, testing::ElementsAre(testing::IsEmpty(), one.returns[0]));
  // d = 0.75 and -0.25 with gamma 1: returns 0.95 0.75 + 0.25 and 1
  EXPECT_NEAR(one.returns[0][0], 0.9625, 1e-12);
  EXPECT_NEAR(one.returns[0][1], 1, 1e-12);
}

TEST(ValueObjective, TwoUpdatesAreThoseOfTheOracle) {
  const SafetensorsFile expected(golden_folder_of_ppo() / "expected.safetensors");
  const auto wanted = [&](const char* name) { return test::values(expected.tensor(name)); };
  for (const std::size_t micro : {1U, 3U}) {
    SCOPED_TRACE(fmt::format("{} at once", micro));
    PpoModels models;
    std::vector<MicroBatch> batches = rows_of_golden_texts(micro);
    const auto answers = models.valued(batches);
    const TokenAdvantages found = token_advantages(answers, {});
    set_advantages(found.advantages, batches);
    ValueTargets targets{.wanted = found.returns};
    for (const ValuedAnswer& one : answers) targets.written.push_back(one.values);
    RolloutObjective policy({.means_of_parts = true});
    ValueObjective values({});
    values.begin_batch(targets);
    models.policy->set_objective(&policy);
    models.critic->set_objective(&values);
    const std::vector<std::vector<MicroBatch>> parts = {batches};
    policy.begin_batch(parts);
    for (std::size_t update = 0; update < 2; ++update) {
      const StepReport report = models.policy->train_step(batches, 0, kPolicyRate);
      EXPECT_NEAR(report.loss, wanted("policy_loss")[update], 1e-4);
      EXPECT_NEAR(report.figures.back().mean(), wanted("policy_clipped")[update], 1e-12);
      const StepReport of_critic = models.critic->train_step(batches, 0, kCriticRate);
      EXPECT_NEAR(of_critic.loss, 0.1 * wanted("value_loss")[update], 1e-5);
      ASSERT_EQ(of_critic.figures.size(), 3);
      EXPECT_NEAR(of_critic.figures[0].mean(), wanted("value_loss")[update], 1e-4);
      EXPECT_NEAR(of_critic.figures[2].mean(), wanted("value_clipped")[update], 1e-12);
    }
    TempFolder adapter;
    fs::copy_file(golden_folder_of_ppo() / "policy.safetensors", adapter / kPeftWeightsName);
    fs::copy_file(test::lora_folder("qwen2") / kPeftConfigName, adapter / kPeftConfigName);
    PeftSource of_policy(adapter.path(), models.files.model(), models.files.family);
    expect_gradients(*models.policy, of_policy, 3e-4);
    TempFolder whole;
    fs::copy_file(golden_folder_of_ppo() / "critic.safetensors", whole / "model.safetensors");
    fs::copy_file(fs::path(PITON_SOURCE_DIR) / "tests/golden/rewards/qwen2/config.json",
                  whole / "config.json");
    HfSource of_critic(whole.path());
    expect_gradients(*models.critic, of_critic, 1e-4);
  }
}

TEST(TokenValueLoss, SlopesAreCentralDifferences) {
  const ValueLossRules rules{.clip = 0.2, .weight = 0.3};
  int clipped = 0;
  for (const double value : {-1.0, -0.1, 0.05, 0.15, 0.9}) {
    for (const double wanted : {-0.5, 0.12, 2.0}) {
      const double step = 1e-6;
      const TokenValueLoss one = token_value_loss(value, 0, wanted, rules);
      const double up = token_value_loss(value + step, 0, wanted, rules).loss;
      const double down = token_value_loss(value - step, 0, wanted, rules).loss;
      EXPECT_NEAR(one.slope, (up - down) / (2 * step), 1e-8) << value << " to " << wanted;
      clipped += one.clipped ? 1 : 0;
    }
  }
  EXPECT_EQ(clipped, 1);
}

// Through the whole model, in fp64; some values are clipped.
TEST(ValueObjective, GradientsAreCentralDifferences) {
  ModelConfig model = preset("llama-tiny");
  model.layers = 2;
  model.hidden = 32;
  model.ffn_hidden = 48;
  model.vocabulary = 131;
  model.dtype = DType::kF64;
  set_labels(model, {});
  HostMachine machine{[](ThreadPool&) { return make_reference_kernels(); }};
  Mesh mesh(*machine.world, MeshSizes{});
  Session critic(machine.machine, mesh,
                 {.model = model, .seed = 11, .use = SessionUse::kGradients});
  critic.initialize();
  const std::vector<MicroBatch> batches = rows_of_golden_texts(2);
  std::vector<std::vector<MicroBatch>> read = {batches};
  read_values(read[0]);
  const auto everyone = make_group_of_all(*machine.world, "test");
  ValueTargets targets{.written = answer_losses(critic, read, {}, 6, *everyone)};
  for (std::vector<double>& answer : targets.written) {
    std::vector<double>& wanted = targets.wanted.emplace_back();
    for (double& value : answer) {
      wanted.push_back(value + 0.3 - 0.1 * static_cast<double>(wanted.size()));
      value += wanted.size() % 2 == 0 ? 0.25 : -0.05;
    }
  }
  ValueObjective objective({.weight = 0.7});
  objective.begin_batch(targets);
  critic.set_objective(&objective);
  const StepReport report = critic.gradients(batches, 0);
  EXPECT_GT(report.figures.back().sum, 0);
  const auto loss = [&] {
    const Session::Evaluation found = critic.evaluate(batches);
    return found.loss_sum / found.loss_tokens;
  };
  EXPECT_NEAR(loss(), report.loss, 1e-12);
  for (Parameter* parameter : critic.parameters()) {
    const std::vector<double> gradient = test::values(parameter->gradient);
    const test::Slope slope = test::largest_slope(critic, *parameter, gradient,
                                                  {.step = 1e-5, .stream = *machine.stream}, loss);
    // Weights of tokens are fp32.
    EXPECT_NEAR(slope.difference, slope.gradient, 1e-5 * (1e-2 + std::abs(slope.gradient)))
        << parameter->name;
  }
}

}  // namespace
}  // namespace piton
