#include "preferences/preference_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include "support/golden_numbers.h"

namespace piton {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

const ScoredAnswer kChosen{.policy = -6, .reference = -8, .tokens = 4};
const ScoredAnswer kRejected{.policy = -9, .reference = -7, .tokens = 3};

TEST(PairLoss, FollowsTheFormulas) {
  const PairLoss dpo = pair_loss({.stage = TrainingStage::kDpo}, kChosen, kRejected);
  EXPECT_NEAR(dpo.loss, -std::log(logistic(0.1 * 4)), 1e-12);
  EXPECT_NEAR(dpo.chosen_reward, 0.2, 1e-12);
  EXPECT_NEAR(dpo.rejected_reward, -0.2, 1e-12);
  EXPECT_NEAR(dpo.dchosen, -0.1 * logistic(-0.4), 1e-12);
  EXPECT_EQ(dpo.drejected, -dpo.dchosen);
  const PairLoss hinge = pair_loss({.stage = TrainingStage::kDpo, .dpo_loss = PairLossKind::kHinge},
                                   kChosen, kRejected);
  EXPECT_NEAR(hinge.loss, 0.6, 1e-12);
  const PairLoss ipo = pair_loss({.stage = TrainingStage::kIpo}, kChosen, kRejected);
  EXPECT_NEAR(ipo.loss, std::pow(0.5 + 2.0 / 3 - 5, 2), 1e-12);
  const PairLoss simpo = pair_loss({.stage = TrainingStage::kSimpo}, kChosen, kRejected);
  EXPECT_NEAR(simpo.loss, -std::log(logistic(2.5 * (-1.5 + 3 - 1.4))), 1e-12);
  const PairLoss orpo = pair_loss({.stage = TrainingStage::kOrpo}, kChosen, kRejected);
  const double odds = (-1.5 - std::log(1 - std::exp(-1.5))) - (-3 - std::log(1 - std::exp(-3)));
  EXPECT_NEAR(orpo.loss, 1.5 - 0.1 * std::log(logistic(odds)), 1e-12);
}

TEST(AnswerLoss, FollowsTheFormulas) {
  const PreferenceOptions options{.stage = TrainingStage::kKto, .kto_undesirable_weight = 2};
  const AnswerLoss good = answer_loss(options, kChosen, true, 0.5);
  EXPECT_NEAR(good.loss, 1 - logistic(0.1 * 1.5), 1e-12);
  EXPECT_NEAR(good.reward, 0.2, 1e-12);
  const AnswerLoss bad = answer_loss(options, kRejected, false, 0.5);
  EXPECT_NEAR(bad.loss, 2 * (1 - logistic(0.1 * 2.5)), 1e-12);
  EXPECT_GT(bad.dpolicy, 0);
}

// The options of the cases of tools/oracle/pair_losses.py.
std::map<std::string, PreferenceOptions> cases_of_trl() {
  using S = TrainingStage;
  using K = PairLossKind;
  using D = DivergenceKind;
  return {
      {"sigmoid", {.stage = S::kDpo}},
      {"hinge", {.stage = S::kDpo, .dpo_beta = 0.4, .dpo_loss = K::kHinge}},
      {"ipo", {.stage = S::kIpo, .dpo_beta = 0.3}},
      {"sigmoid_norm", {.stage = S::kDpo, .dpo_beta = 2, .dpo_loss = K::kSigmoidNorm}},
      {"robust", {.stage = S::kDpo, .dpo_loss = K::kRobust, .dpo_label_smoothing = 0.1}},
      {"exo_pair",
       {.stage = S::kDpo, .dpo_beta = 0.5, .dpo_loss = K::kExoPair, .dpo_label_smoothing = 1e-3}},
      {"nca_pair", {.stage = S::kDpo, .dpo_loss = K::kNcaPair}},
      {"bco_pair", {.stage = S::kDpo, .dpo_loss = K::kBcoPair}},
      {"sppo_hard", {.stage = S::kDpo, .dpo_beta = 0.2, .dpo_loss = K::kSppoHard}},
      {"apo_zero", {.stage = S::kDpo, .dpo_loss = K::kApoZero}},
      {"apo_down", {.stage = S::kDpo, .dpo_beta = 0.3, .dpo_loss = K::kApoDown}},
      {"discopop", {.stage = S::kDpo, .dpo_beta = 0.05, .dpo_loss = K::kDiscopop}},
      {"forward_kl", {.stage = S::kDpo, .divergence = D::kForwardKl}},
      {"js",
       {.stage = S::kDpo,
        .dpo_loss = K::kRobust,
        .dpo_label_smoothing = 0.2,
        .divergence = D::kJensenShannon}},
      {"alpha", {.stage = S::kDpo, .divergence = D::kAlpha, .divergence_coefficient = 0.3}},
      {"alpha_one", {.stage = S::kDpo, .divergence = D::kAlpha, .divergence_coefficient = 1}},
      {"js_ipo", {.stage = S::kDpo, .dpo_loss = K::kIpo, .divergence = D::kJensenShannon}},
      {"ld", {.stage = S::kDpo, .ld_alpha = 0.4}},
      {"ld_nca", {.stage = S::kDpo, .dpo_loss = K::kNcaPair, .ld_alpha = 0}},
      {"cpo", {.stage = S::kCpo, .cpo_label_smoothing = 0.1}},
      {"cpo_hinge", {.stage = S::kCpo, .cpo_beta = 0.05, .cpo_alpha = 0.5, .cpo_loss = K::kHinge}},
      {"cpo_ipo", {.stage = S::kCpo, .cpo_beta = 0.3, .cpo_alpha = 0, .cpo_loss = K::kIpo}}};
}

TEST(PairLoss, IsThatOfTrlWithItsDerivatives) {
  const std::map<std::string, PreferenceOptions> options = cases_of_trl();
  std::ifstream golden(std::string(PITON_SOURCE_DIR) + "/tests/golden/preferences/pairs.txt");
  std::string origin, name;
  std::getline(golden, origin);
  std::size_t cases = 0;
  while (golden >> name) {
    const std::vector<double> numbers = test::next_numbers(golden);
    ASSERT_EQ(numbers.size(), 15) << name;
    ScoredAnswer answers[2];
    for (std::size_t i = 0; i < 2; ++i) {
      answers[i] = {.policy = numbers[3 * i],
                    .reference = numbers[3 * i + 1],
                    .tokens = numbers[3 * i + 2],
                    .policy_tail = numbers[6 + 2 * i],
                    .reference_tail = numbers[7 + 2 * i]};
    }
    options.at(name).check();
    const PairLoss pair = pair_loss(options.at(name), answers[0], answers[1]);
    // TRL computes exponents of an alpha-divergence, and logarithms of exo's smoothing, in fp32.
    const double near = name == "alpha" || name == "exo_pair" ? 1e-6 : 1e-12;
    const double got[] = {pair.loss, pair.dchosen, pair.drejected, pair.dchosen_tail,
                          pair.drejected_tail};
    for (std::size_t i = 0; i < 5; ++i) {
      // No token of the shorter answer is beyond it: its last one is the derivative of all.
      const bool shorter = i >= 3 && answers[i - 3].tokens <= answers[4 - i].tokens;
      EXPECT_NEAR(shorter ? got[i - 2] : got[i], numbers[10 + i],
                  near * (1 + std::abs(numbers[10 + i])))
          << name << ", number " << i;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 2 * options.size());
}

// Derivatives of all losses, by differences.
TEST(PairLoss, HasTheDerivativesOfItsLoss) {
  using S = TrainingStage;
  const double step = 1e-5;
  const PreferenceOptions all[] = {{.stage = S::kDpo, .dpo_label_smoothing = 0.2, .pref_ftx = 0.3},
                                   {.stage = S::kDpo, .dpo_loss = PairLossKind::kHinge},
                                   {.stage = S::kDpo, .dpo_loss = PairLossKind::kIpo},
                                   {.stage = S::kIpo},
                                   {.stage = S::kOrpo},
                                   {.stage = S::kSimpo, .simpo_label_smoothing = 0.1},
                                   {.stage = S::kSimpo, .simpo_loss = PairLossKind::kHinge}};
  for (const PreferenceOptions& options : all) {
    const auto loss = [&](double chosen, double rejected) {
      ScoredAnswer c = kChosen, r = kRejected;
      c.policy += chosen;
      r.policy += rejected;
      return pair_loss(options, c, r).loss;
    };
    const PairLoss found = pair_loss(options, kChosen, kRejected);
    EXPECT_NEAR((loss(step, 0) - loss(-step, 0)) / (2 * step), found.dchosen, 1e-8)
        << name(options.stage);
    EXPECT_NEAR((loss(0, step) - loss(0, -step)) / (2 * step), found.drejected, 1e-8)
        << name(options.stage);
  }
}

// The odds of a certain answer are infinite, and what the loss makes of them is not.
TEST(PairLoss, OfOrpoIsFiniteForCertainAnswers) {
  const ScoredAnswer certain{.policy = 0, .reference = 0, .tokens = 3};
  const PreferenceOptions orpo{.stage = TrainingStage::kOrpo};
  const PairLoss good = pair_loss(orpo, certain, kRejected);
  EXPECT_NEAR(good.loss, 0, 1e-6);
  // The limit of the derivative by p / n: -1 - b s(o_j - o_c) / (1 - exp q).
  EXPECT_NEAR(3 * good.dchosen, -1 - 0.1 * std::exp(-3) / (1 - std::exp(-3)), 1e-6);
  EXPECT_NEAR(good.drejected, 0, 1e-6);
  for (const PairLoss& bad : {pair_loss(orpo, kChosen, certain), pair_loss(orpo, certain, certain)})
    EXPECT_TRUE(std::isfinite(bad.loss) && std::isfinite(bad.dchosen) &&
                std::isfinite(bad.drejected) && bad.drejected > 0);
}

TEST(PairLoss, IsFiniteFarFromZero) {
  for (const double policy : {-1e4, -1e-3}) {
    const ScoredAnswer far{.policy = policy, .reference = -5e3, .tokens = 7};
    for (const TrainingStage stage :
         {TrainingStage::kDpo, TrainingStage::kSimpo, TrainingStage::kOrpo}) {
      const PairLoss found = pair_loss({.stage = stage}, far, kRejected);
      EXPECT_TRUE(std::isfinite(found.loss) && std::isfinite(found.dchosen)) << name(stage);
    }
  }
}

}  // namespace
}  // namespace piton
