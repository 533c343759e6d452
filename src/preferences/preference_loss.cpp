#include "preferences/preference_loss.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "preferences/pair_term.h"

namespace piton {
namespace {

// The log of the odds of a mean log-probability. A certain answer (q = 0) has infinite odds; losses
// of tokens are fp32 numbers, in which the difference of q from 0 is not known below this.
ScoreTerm log_odds(double q) {
  constexpr double kLeast = 1e-8;
  q = std::min(q, -kLeast);
  return {q - std::log(-std::expm1(q)), -1 / std::expm1(q)};
}

// The log-ratio of an answer, and its score, which is divided by the tokens of the answer or not.
struct ScoredRatio {
  double share = 1;
  double ratio = 0;
  ScoreTerm score;
};

ScoredRatio scored_ratio(const PreferenceOptions& options, const ScoredAnswer& answer, bool mean) {
  const double left_out = 1 - options.ld_alpha.value_or(1);
  const double ratio =
      answer.policy - answer.reference - left_out * (answer.policy_tail - answer.reference_tail);
  return {mean ? 1 / answer.tokens : 1, ratio,
          score_of(options.divergence, options.divergence_coefficient, ratio)};
}

PairLoss with_reference(const PreferenceOptions& options, const ScoredAnswer& chosen,
                        const ScoredAnswer& rejected) {
  const PairLossKind kind =
      options.stage == TrainingStage::kIpo ? PairLossKind::kIpo : options.dpo_loss;
  const double beta = options.dpo_beta;
  const bool mean = kind == PairLossKind::kIpo || kind == PairLossKind::kSigmoidNorm;
  const ScoredRatio good = scored_ratio(options, chosen, mean);
  const ScoredRatio bad = scored_ratio(options, rejected, mean);
  const PairTerm term = pair_term({kind, beta, options.dpo_label_smoothing, options.discopop_tau},
                                  good.share * good.score.value, bad.share * bad.score.value);
  const double dchosen = term.dchosen * good.share * good.score.slope;
  const double drejected = term.drejected * bad.share * bad.score.slope;
  const double of_tail = options.ld_alpha.value_or(1);
  const double of_words = options.pref_ftx / chosen.tokens;
  return {.loss = term.value - of_words * chosen.policy,
          .dchosen = dchosen - of_words,
          .drejected = drejected,
          .dchosen_tail = of_tail * dchosen - of_words,
          .drejected_tail = of_tail * drejected,
          .chosen_reward = beta * good.share * good.ratio,
          .rejected_reward = beta * bad.share * bad.ratio};
}

PairLoss cpo(const PreferenceOptions& options, const ScoredAnswer& chosen,
             const ScoredAnswer& rejected) {
  const bool mean = options.cpo_loss == PairLossKind::kIpo;
  const double chosen_share = mean ? 1 / chosen.tokens : 1;
  const double rejected_share = mean ? 1 / rejected.tokens : 1;
  const double beta = options.cpo_beta;
  const PairTerm term = pair_term({options.cpo_loss, beta, options.cpo_label_smoothing},
                                  chosen_share * chosen.policy, rejected_share * rejected.policy);
  const double of_words = options.cpo_alpha / chosen.tokens;
  return {.loss = term.value - of_words * chosen.policy,
          .dchosen = term.dchosen * chosen_share - of_words,
          .drejected = term.drejected * rejected_share,
          .chosen_reward = beta * chosen_share * chosen.policy,
          .rejected_reward = beta * rejected_share * rejected.policy};
}

PairLoss simpo(const PreferenceOptions& options, double chosen, double rejected) {
  const PairTerm term =
      pair_term({options.simpo_loss, options.simpo_beta, options.simpo_label_smoothing},
                chosen - options.gamma_beta_ratio, rejected);
  return {.loss = term.value,
          .dchosen = term.dchosen,
          .drejected = term.drejected,
          .chosen_reward = options.simpo_beta * chosen,
          .rejected_reward = options.simpo_beta * rejected};
}

PairLoss orpo(const PreferenceOptions& options, double chosen, double rejected) {
  const double beta = options.orpo_beta;
  const ScoreTerm good = log_odds(chosen);
  const ScoreTerm bad = log_odds(rejected);
  const double ratio = good.value - bad.value;
  const double slope = beta * logistic(-ratio);
  return {.loss = -chosen - beta * log_logistic(ratio),
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
  PairLoss loss;
  if (options.stage == TrainingStage::kCpo) {
    loss = cpo(options, chosen, rejected);
  } else {
    const bool of_odds = options.stage == TrainingStage::kOrpo;
    loss = (of_odds ? orpo : simpo)(options, chosen.policy / chosen.tokens,
                                    rejected.policy / rejected.tokens);
    loss.dchosen /= chosen.tokens;
    loss.drejected /= rejected.tokens;
  }
  loss.dchosen_tail = loss.dchosen;
  loss.drejected_tail = loss.drejected;
  return loss;
}

PairLoss reward_loss(const PreferenceOptions& options, double chosen, double rejected) {
  const double above = chosen - rejected - options.reward_margin;
  const double sum = chosen + rejected;
  const double centering = 2 * options.center_rewards * sum;
  return {.loss = -log_logistic(above) + options.center_rewards * sum * sum,
          .dchosen = -logistic(-above) + centering,
          .drejected = logistic(-above) + centering,
          .chosen_reward = chosen,
          .rejected_reward = rejected};
}

AnswerLoss answer_loss(const PreferenceOptions& options, const ScoredAnswer& answer, bool desirable,
                       double divergence) {
  const double beta = options.kto_beta;
  const double weight = desirable ? options.kto_desirable_weight : options.kto_undesirable_weight;
  const double sign = desirable ? 1 : -1;
  const double ratio = answer.policy - answer.reference;
  const double value = logistic(sign * beta * (ratio - divergence));
  return {.loss = weight * (1 - value),
          .dpolicy = -sign * weight * beta * value * (1 - value),
          .reward = beta * ratio};
}

}  // namespace piton
