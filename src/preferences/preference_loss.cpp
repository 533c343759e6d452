#include "preferences/preference_loss.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace piton {
namespace {

double sigmoid(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);
  return e / (1 + e);
}

double log_sigmoid(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }

// A function of a margin, and its derivative.
struct Term {
  double value = 0;
  double slope = 0;
};

Term of_margin(PairLossKind kind, double beta, double smoothing, double z) {
  switch (kind) {
    case PairLossKind::kSigmoid:
      return {-(1 - smoothing) * log_sigmoid(beta * z) - smoothing * log_sigmoid(-beta * z),
              beta * (smoothing * sigmoid(beta * z) - (1 - smoothing) * sigmoid(-beta * z))};
    case PairLossKind::kHinge:
      return {std::max(0.0, 1 - beta * z), beta * z < 1 ? -beta : 0.0};
    case PairLossKind::kIpo: {
      const double distance = z - 1 / (2 * beta);
      return {distance * distance, 2 * distance};
    }
  }
  PITON_ASSERT(false, "loss {}", static_cast<int>(kind));
  return {};
}

// The log of the odds of a mean log-probability. A certain answer (q = 0) has infinite odds; losses
// of tokens are fp32 numbers, in which the difference of q from 0 is not known below this.
Term log_odds(double q) {
  constexpr double kLeast = 1e-8;
  q = std::min(q, -kLeast);
  return {q - std::log(-std::expm1(q)), -1 / std::expm1(q)};
}

PairLoss with_reference(const PreferenceOptions& options, const ScoredAnswer& chosen,
                        const ScoredAnswer& rejected) {
  const PairLossKind kind =
      options.stage == TrainingStage::kIpo ? PairLossKind::kIpo : options.dpo_loss;
  const double beta = options.dpo_beta;
  const bool mean = kind == PairLossKind::kIpo;
  const double chosen_share = mean ? 1 / chosen.tokens : 1;
  const double rejected_share = mean ? 1 / rejected.tokens : 1;
  const double chosen_ratio = chosen_share * (chosen.policy - chosen.reference);
  const double rejected_ratio = rejected_share * (rejected.policy - rejected.reference);
  const Term term =
      of_margin(kind, beta, options.dpo_label_smoothing, chosen_ratio - rejected_ratio);
  return {.loss = term.value - options.pref_ftx * chosen.policy / chosen.tokens,
          .dchosen = term.slope * chosen_share - options.pref_ftx / chosen.tokens,
          .drejected = -term.slope * rejected_share,
          .chosen_reward = beta * chosen_ratio,
          .rejected_reward = beta * rejected_ratio};
}

PairLoss simpo(const PreferenceOptions& options, double chosen, double rejected) {
  const Term term = of_margin(options.simpo_loss, options.simpo_beta, options.simpo_label_smoothing,
                              chosen - rejected - options.gamma_beta_ratio);
  return {.loss = term.value,
          .dchosen = term.slope,
          .drejected = -term.slope,
          .chosen_reward = options.simpo_beta * chosen,
          .rejected_reward = options.simpo_beta * rejected};
}

PairLoss orpo(const PreferenceOptions& options, double chosen, double rejected) {
  const double beta = options.orpo_beta;
  const Term good = log_odds(chosen);
  const Term bad = log_odds(rejected);
  const double ratio = good.value - bad.value;
  const double slope = beta * sigmoid(-ratio);
  return {.loss = -chosen - beta * log_sigmoid(ratio),
          .dchosen = -1 - slope * good.slope,
          .drejected = slope * bad.slope,
          .chosen_reward = beta * chosen,
          .rejected_reward = beta * rejected};
}

}  // namespace

PairLoss pair_loss(const PreferenceOptions& options, const ScoredAnswer& chosen,
                   const ScoredAnswer& rejected) {
  PITON_ASSERT(options.by_pairs() && chosen.tokens > 0 && rejected.tokens > 0,
               "{} of {} and {} tokens", name(options.stage), chosen.tokens, rejected.tokens);
  if (options.has_reference()) return with_reference(options, chosen, rejected);
  const bool of_odds = options.stage == TrainingStage::kOrpo;
  PairLoss loss = (of_odds ? orpo : simpo)(options, chosen.policy / chosen.tokens,
                                           rejected.policy / rejected.tokens);
  loss.dchosen /= chosen.tokens;
  loss.drejected /= rejected.tokens;
  return loss;
}

PairLoss reward_loss(const PreferenceOptions& options, double chosen, double rejected) {
  const double above = chosen - rejected - options.reward_margin;
  const double sum = chosen + rejected;
  const double centering = 2 * options.center_rewards * sum;
  return {.loss = -log_sigmoid(above) + options.center_rewards * sum * sum,
          .dchosen = -sigmoid(-above) + centering,
          .drejected = sigmoid(-above) + centering,
          .chosen_reward = chosen,
          .rejected_reward = rejected};
}

AnswerLoss answer_loss(const PreferenceOptions& options, const ScoredAnswer& answer, bool desirable,
                       double divergence) {
  const double beta = options.kto_beta;
  const double weight = desirable ? options.kto_desirable_weight : options.kto_undesirable_weight;
  const double sign = desirable ? 1 : -1;
  const double ratio = answer.policy - answer.reference;
  const double value = sigmoid(sign * beta * (ratio - divergence));
  return {.loss = weight * (1 - value),
          .dpolicy = -sign * weight * beta * value * (1 - value),
          .reward = beta * ratio};
}

}  // namespace piton
