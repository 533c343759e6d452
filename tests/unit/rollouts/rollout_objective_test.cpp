// Losses, figures and gradients of policies: those of TRL's trainer
// (tools/oracle/policy_gradients.py), and central differences; micro-batches and dropout.
#include "rollouts/rollout_objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/reference/kernels.h"
#include "model/lora/lora_options.h"
#include "policy_texts.h"
#include "rollouts/advantages.h"
#include "rollouts/answer_divergences.h"
#include "session/session.h"
#include "support/golden_lora.h"
#include "support/run_session.h"
#include "support/sampled.h"
#include "support/session/central_difference.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using test::golden_folder_of_policies;
using test::golden_policy_texts;
using test::HostMachine;
using test::LoraFiles;
using test::policy_batches;
using test::PolicyText;

constexpr std::int64_t kLongestAnswer = 16;

struct PolicyCase {
  const char* name;
  PolicyLossRules rules;
  const char* scale;
  std::vector<std::size_t> micro;  // bnpo depends on it
  double temperature = 1;
};

std::vector<PolicyCase> policy_cases() {
  using K = PolicyLossKind;
  const auto rules = [](K kind, double beta) {
    return PolicyLossRules{.kind = kind, .clip = {.beta = beta}, .longest_answer = kLongestAnswer};
  };
  return {{"grpo", rules(K::kGrpo, 0), "group", {1, 2, 6}},
          {"dr_grpo", rules(K::kDrGrpo, 0), "none", {1, 2, 6}},
          {"dapo", rules(K::kDapo, 0), "group", {1, 2, 6}},
          {"bnpo", rules(K::kBnpo, 0), "batch", {2}},
          {"grpo_kl", rules(K::kGrpo, 0.2), "group", {1, 6}},
          {"dapo_kl", rules(K::kDapo, 0.5), "batch", {3, 2}},
          {"cispo", rules(K::kCispo, 0), "group", {1, 6}},
          {"rloo", rules(K::kRloo, 0), "rloo", {1, 2, 6}},
          {"dapo_warm", rules(K::kDapo, 0.5), "group", {2, 6}, 1.6}};
}

// The second of two updates of a batch of answers.
std::vector<PolicyCase> clipped_policy_cases() {
  using K = PolicyLossKind;
  using L = RatioLevel;
  return {{"dapo_clip", {K::kDapo, {0.2, 0.28, 0.3}, L::kToken, kLongestAnswer}, "group", {1, 3}},
          {"grpo_clip", {K::kGrpo, {0.1, 0.1, 0}, L::kToken, kLongestAnswer}, "group", {3, 1}},
          {"grpo_sequence",
           {K::kGrpo, {0.003, 0.02, 0.1}, L::kSequence, kLongestAnswer},
           "group",
           {3, 1}},
          {"cispo_clip", {K::kCispo, {0.2, 1.02, 0.1}, L::kToken, kLongestAnswer}, "group", {3, 1}},
          {"rloo_clip", {K::kRloo, {0.2, 20}, L::kToken, kLongestAnswer}, "rloo_batch", {1, 3}},
          {"sapo_clip", {K::kSapo, {}, L::kToken, kLongestAnswer}, "batch", {1, 3}}};
}

double length_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += one * one;
  return std::sqrt(sum);
}

std::map<std::string, std::vector<double>> adapter_gradients(Session& session) {
  std::map<std::string, std::vector<double>> found;
  for (const Parameter* parameter : session.parameters()) {
    if (!parameter->trainable) continue;
    for (const Piece& piece : parameter->pieces)
      found[piece.name] =
          test::values(parameter->gradient.slice(0, piece.local_row, piece.extent[0]));
  }
  return found;
}

// Gradients of the adapter are those of the oracle's file of a case.
void expect_gradients_of(const std::string& name, LoraFiles& files, Session& session) {
  TempFolder folder;
  fs::copy_file(golden_folder_of_policies() / (name + ".safetensors"), folder / kPeftWeightsName);
  fs::copy_file(test::lora_folder("qwen2") / kPeftConfigName, folder / kPeftConfigName);
  PeftSource wanted(folder.path(), files.model(), files.family);
  const auto ours = adapter_gradients(session);
  ASSERT_EQ(ours.size(), wanted.tensors(TensorKind::kWeight).size());
  for (const CanonicalTensor& tensor : wanted.tensors(TensorKind::kWeight)) {
    const std::vector<double> right = test::values_of(wanted, tensor);
    ASSERT_GT(length_of(right), 0) << tensor.name;
    EXPECT_LE(test::largest_distance(ours.at(tensor.name), right), 2e-5 * length_of(right))
        << tensor.name;
  }
}

TEST(RolloutObjective, HasTheLossesAndGradientsOfTheOracle) {
  const SafetensorsFile batch(golden_folder_of_policies() / "batch.safetensors");
  const auto texts = golden_policy_texts(batch);
  HostMachine machine;
  LoraFiles files("qwen2");
  for (const PolicyCase& one : policy_cases()) {
    Mesh mesh(*machine.world, MeshSizes{});
    Session session(machine.machine, mesh,
                    {.model = files.model(),
                     .logit_temperature = one.temperature,
                     .adapters = files.adapter.adapters()});
    test::load_lora(session, files.base, files.adapter, machine);
    RolloutObjective objective(one.rules);
    session.set_objective(&objective);
    const double loss = test::value_at(batch.tensor(std::string(one.name) + ".loss"), 0);
    const double divergence = test::value_at(batch.tensor(std::string(one.name) + ".kl"), 0);
    const auto advantages = test::values(batch.tensor(std::string("advantages.") + one.scale));
    for (const std::size_t micro : one.micro) {
      SCOPED_TRACE(fmt::format("{}, {} at once", one.name, micro));
      objective.report({{"reward", 6, 3}});
      const StepReport report = session.gradients(policy_batches(texts, advantages, 32, micro), 0);
      EXPECT_NEAR(report.loss, loss, 1e-5 * (1e-3 + std::abs(loss)));
      const bool compares = one.rules.clip.beta > 0;
      ASSERT_EQ(report.figures.size(), compares ? 2 : 1);
      EXPECT_EQ(report.figures[0].mean(), 2);
      if (compares) {
        EXPECT_NEAR(report.figures[1].mean(), divergence, 2e-5 * divergence);
      }
      expect_gradients_of(one.name, files, session);
    }
  }
}

// Multiplies the second matrices of all adapters.
void scale_adapters(Session& session, double factor, HostMachine& machine) {
  for (Parameter* parameter : session.parameters()) {
    if (!parameter->trainable || parameter->name.find("lora_b") == std::string::npos) continue;
    const Tensor values = session.sharded().whole_value(*parameter, *machine.stream);
    for (std::int64_t i = 0; i < values.elements(); ++i)
      test::set_value(values, i, factor * test::value_at(values, i));
    session.sharded().set_value(*parameter, values, *machine.stream);
  }
  session.publish_values();
}

TEST(RolloutObjective, ComparesLaterUpdatesWithTheModelThatWroteTheAnswers) {
  const SafetensorsFile file(golden_folder_of_policies() / "batch.safetensors");
  const auto texts = golden_policy_texts(file);
  HostMachine machine;
  LoraFiles files("qwen2");
  for (const PolicyCase& one : clipped_policy_cases()) {
    Mesh mesh(*machine.world, MeshSizes{});
    Session session(machine.machine, mesh,
                    {.model = files.model(), .adapters = files.adapter.adapters()});
    RolloutObjective objective(one.rules);
    session.set_objective(&objective);
    const auto advantages = test::values(file.tensor(std::string("advantages.") + one.scale));
    const auto wanted = [&](const char* what) {
      return test::value_at(file.tensor(fmt::format("{}.{}", one.name, what)), 0);
    };
    for (const std::size_t micro : one.micro) {
      SCOPED_TRACE(fmt::format("{}, {} at once", one.name, micro));
      const auto whole = policy_batches(texts, advantages, 32, micro);
      const auto middle = whole.begin() + static_cast<std::ptrdiff_t>(3 / micro);
      const std::vector<std::vector<MicroBatch>> parts = {{whole.begin(), middle},
                                                          {middle, whole.end()}};
      test::load_lora(session, files.base, files.adapter, machine);
      scale_adapters(session, 0.9375, machine);
      objective.begin_batch(parts);
      const StepReport first = session.gradients(parts[0], 0);
      const bool clips = one.rules.kind != PolicyLossKind::kSapo;
      if (clips) {
        EXPECT_EQ(first.figures.back().name, "clip_ratio");
        EXPECT_EQ(first.figures.back().sum, 0);
      }
      test::load_lora(session, files.base, files.adapter, machine);
      const StepReport report = session.gradients(parts[1], 0);
      // The exponent of a whole answer adds up the rounding of all its tokens, in fp32.
      const double bound = one.rules.kind == PolicyLossKind::kRloo ? 6e-5 : 2e-5;
      EXPECT_NEAR(report.loss, wanted("loss"), bound * std::abs(wanted("loss")));
      if (clips) {
        EXPECT_NEAR(report.figures.back().mean(), wanted("clipped"), 1e-12);
      }
      if (one.rules.clip.beta > 0) {
        EXPECT_NEAR(report.figures[0].mean(), wanted("kl"), 2e-5 * wanted("kl"));
      }
      expect_gradients_of(one.name, files, session);
      objective.begin_batch({});
    }
  }
}

TEST(Advantages, AreThoseOfTheOracle) {
  const SafetensorsFile batch(golden_folder_of_policies() / "batch.safetensors");
  const auto rewards = test::values(batch.tensor("rewards"));
  using S = RewardScale;
  constexpr AdvantageEstimator kRloo = AdvantageEstimator::kRloo;
  const std::map<std::string, AdvantageRules> all = {{"group", {S::kGroup}},
                                                     {"batch", {S::kBatch}},
                                                     {"none", {S::kNone}},
                                                     {"rloo", {S::kNone, kRloo}},
                                                     {"rloo_batch", {S::kBatch, kRloo}}};
  for (const auto& [name, rules] : all) {
    const auto wanted = test::values(batch.tensor("advantages." + name));
    const Advantages found = advantages_of(rewards, 3, rules);
    ASSERT_EQ(found.values.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(found.values[i], wanted[i], 1e-7) << name;  // TRL divides by n - 1 in fp32
    EXPECT_EQ(found.without_spread, 0);
    EXPECT_EQ(found.groups, 2);
  }
}

// The divergences of answers, and the advantages of rewards that lose half of them.
TEST(AnswerDivergences, AreThoseOfTheOracle) {
  const SafetensorsFile file(golden_folder_of_policies() / "batch.safetensors");
  HostMachine machine;
  LoraFiles files("qwen2");
  Mesh mesh(*machine.world, MeshSizes{});
  Session session(machine.machine, mesh,
                  {.model = files.model(), .adapters = files.adapter.adapters()});
  test::load_lora(session, files.base, files.adapter, machine);
  const auto texts = golden_policy_texts(file);
  const auto whole = policy_batches(texts, std::vector<double>(texts.size(), 1), 32, 2);
  const std::vector<std::vector<MicroBatch>> parts = {{whole.begin(), whole.begin() + 1},
                                                      {whole.begin() + 1, whole.end()}};
  const auto everyone = make_group_of_all(*machine.world, "test");
  const auto found = answer_divergences({session}, parts, std::ssize(texts), *everyone);
  const auto wanted = test::values(file.tensor("divergence"));
  auto rewards = test::values(file.tensor("rewards"));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(found[i], wanted[i], 1e-5 * (1 + std::abs(wanted[i]))) << i;
    EXPECT_GT(std::abs(wanted[i]), 1e-3);
    rewards[i] -= 0.5 * found[i];
  }
  const auto advantages = test::values(file.tensor("advantages.rloo_kl"));
  const Advantages ours =
      advantages_of(rewards, 3, {RewardScale::kNone, AdvantageEstimator::kRloo});
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(ours.values[i], advantages[i], 1e-5 * (1 + std::abs(advantages[i]))) << i;
}

TEST(Advantages, OfEqualRewardsAreZero) {
  for (const RewardScale scale : {RewardScale::kGroup, RewardScale::kBatch, RewardScale::kNone}) {
    const Advantages found = advantages_of(std::vector<double>{0.1, 0.1, 0.1, 1, 0, 1}, 3, {scale});
    EXPECT_NEAR(found.values[0], 0, 1e-12);
    EXPECT_GT(found.values[3], 0);
    EXPECT_EQ(found.without_spread, 1);
  }
}

// A model in fp64 and another one as its reference.
struct PolicyModels {
  explicit PolicyModels(double dropout) : mesh(*machine.world, MeshSizes{}) {
    ModelConfig model = preset("llama-tiny");
    model.layers = 2;
    model.hidden = 32;
    model.ffn_hidden = 48;
    model.vocabulary = 61;
    model.dtype = DType::kF64;
    model.hidden_dropout = model.attention_dropout = dropout;
    session = std::make_unique<Session>(
        machine.machine, mesh,
        SessionSettings{.model = model, .seed = 11, .use = SessionUse::kGradients});
    reference = std::make_unique<Session>(
        machine.machine, mesh,
        SessionSettings{.model = model, .seed = 12, .use = SessionUse::kInference});
    session->initialize();
    reference->initialize();
  }

  HostMachine machine{[](ThreadPool&) { return make_reference_kernels(); }};
  Mesh mesh;
  std::unique_ptr<Session> session;
  std::unique_ptr<Session> reference;
};

// The loss whose gradient is taken has the value -A exp(p - p'), where p' is p before the change:
// sum_i A_i p_i in its first order, of which token losses are the other sign.
TEST(RolloutObjective, GradientsAreCentralDifferences) {
  const std::vector<double> advantages = {0.7, -1.1, 0.4, 0.0};
  std::vector<PolicyText> texts(4);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (std::size_t place = 0; place < 6 + 2 * i; ++place) {
      texts[i].ids.push_back(static_cast<std::int32_t>((7 * i + 11 * place + 3) % 61));
      texts[i].labels.push_back(place < 3 ? kNoLabel : texts[i].ids.back());
    }
  }
  for (const double dropout : {0.0, 0.2}) {
    PolicyModels models(dropout);
    const double beta = 0.3;
    RolloutObjective objective({.kind = PolicyLossKind::kGrpo, .clip = {.beta = beta}},
                               models.reference.get());
    Session& session = *models.session;
    session.set_objective(&objective);
    const auto batches = policy_batches(texts, advantages, 16, 2);
    session.gradients(batches, 64);
    const auto reference = models.reference->token_losses(batches, {});
    const auto loss = [&] {
      double sum = 0;
      const auto policy = session.token_losses(batches, {.training = true});
      for (std::size_t i = 0; i < texts.size(); ++i) {
        for (std::size_t at = 0; at < 16; ++at) {
          const std::size_t row = i % 2 * 16 + at;
          if (batches[i / 2].labels[row] < 0) continue;
          const double difference = policy[i / 2][row] - reference[i / 2][row];
          const double one = static_cast<float>(advantages[i]) * policy[i / 2][row] +
                             beta * (std::exp(difference) - difference - 1);
          sum += one / static_cast<double>(texts[i].ids.size() - 3) / 4;
        }
      }
      return sum;
    };
    int probed = 0;
    for (Parameter* parameter : session.parameters()) {
      if (++probed % 4 != 1) continue;
      const std::vector<double> gradient = test::values(parameter->gradient);
      const test::Slope slope = test::largest_slope(
          session, *parameter, gradient, {.step = 1e-4, .stream = *models.machine.stream}, loss);
      // Weights of tokens are fp32.
      EXPECT_NEAR(slope.difference, slope.gradient, 1e-5 * (1 + std::abs(slope.gradient)))
          << parameter->name;
    }
  }
}

}  // namespace
}  // namespace piton
