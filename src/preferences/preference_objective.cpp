#include "preferences/preference_objective.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"
#include "comm/gathered_values.h"
#include "preferences/checked_answers.h"

namespace piton {
namespace {

// Numbers that are summed over ranks.
struct Totals {
  double loss = 0;
  double count = 0;  // pairs, or answers of kto
  double chosen = 0;
  double chosen_reward = 0;
  double rejected = 0;
  double rejected_reward = 0;
  double right = 0;  // pairs whose chosen answer has the higher reward
  double divergence = 0;
};

constexpr std::array<double Totals::*, 8> kTotals = {
    &Totals::loss,     &Totals::count,           &Totals::chosen, &Totals::chosen_reward,
    &Totals::rejected, &Totals::rejected_reward, &Totals::right,  &Totals::divergence};

// Only the last stage has other numbers than 0, and all tensor ranks have the same.
Totals summed(Session& session, const Totals& own) {
  Totals sum;
  for (const Totals& one : gathered_values(session.mesh().group(kLossAxes), own)) {
    for (const auto field : kTotals) sum.*field += one.*field;
  }
  return sum;
}

// Derivatives of the loss by the log-probabilities of the tokens of an answer: of the first ones,
// as many as both answers of a pair have, and of the rest.
struct AnswerSlope {
  double shared = 0;
  double tail = 0;
  double shared_tokens = 0;
};

// The loss of each token becomes its weight: dL / d(loss) = -dL / d(log-probability).
void set_weights(const Answer& answer, const AnswerSlope& slope, MicroBatch& batch) {
  double token = 0;
  for (std::int64_t row = answer.begin; row < answer.end; ++row) {
    const auto at = static_cast<std::size_t>(row);
    if (batch.labels[at] < 0) continue;
    batch.loss_mask[at] =
        static_cast<float>(token < slope.shared_tokens ? -slope.shared : -slope.tail);
    token += 1;
  }
}

double labeled_tokens(const Answer& answer, const MicroBatch& batch) {
  const auto labels = std::span(batch.labels)
                          .subspan(static_cast<std::size_t>(answer.begin),
                                   static_cast<std::size_t>(answer.end - answer.begin));
  const auto tokens = std::ranges::count_if(labels, [](std::int32_t label) { return label >= 0; });
  if (tokens > 0) return static_cast<double>(tokens);
  throw Error(Fault::kData,
              "no token of an answer of {} tokens has a label; piton inspect samples shows them",
              answer.end - answer.begin);
}

// Calls each(batch index, answer index) for every other answer: the first of each two.
template <typename Each>
void for_each_two(const std::vector<MicroBatch>& batches, Each&& each) {
  for (std::size_t i = 0; i < batches.size(); ++i) {
    PITON_ASSERT(batches[i].answers.size() % 2 == 0, "{} answers", batches[i].answers.size());
    for (std::size_t k = 0; k < batches[i].answers.size(); k += 2) each(i, k);
  }
}

std::vector<ObjectiveFigure> figures_of(const Totals& sum, bool pairs) {
  std::vector<ObjectiveFigure> all{{"rewards_chosen", sum.chosen_reward, sum.chosen},
                                   {"rewards_rejected", sum.rejected_reward, sum.rejected}};
  if (pairs) {
    all.push_back({"rewards_margin", sum.chosen_reward - sum.rejected_reward, sum.count});
    all.push_back({"rewards_accuracy", sum.right, sum.count});
    return all;
  }
  if (sum.chosen > 0 && sum.rejected > 0)
    all.push_back({"rewards_margin", all[0].mean() - all[1].mean(), 1});
  all.push_back({"kl", sum.divergence, 1});
  return all;
}

}  // namespace

// The sums of log-probabilities of each answer, on the last stage; 0 on the others.
std::vector<std::vector<ScoredAnswer>> PreferenceObjective::scores(
    Session& session, const std::vector<MicroBatch>& batches, bool training) {
  const TokenLosses policy = session.token_losses(batches, {.training = training});
  TokenLosses reference;
  if (options_.has_reference()) {
    reference = reference_ != nullptr ? reference_->token_losses(batches, {})
                                      : session.token_losses(batches, {.adapters = false});
  }
  std::vector<std::vector<ScoredAnswer>> all(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const MicroBatch& batch = batches[i];
    for (const Answer& answer : batch.answers)
      all[i].push_back({.tokens = labeled_tokens(answer, batch)});
    if (policy[i].empty()) continue;
    for (std::size_t k = 0; k < batch.answers.size(); ++k) {
      ScoredAnswer& score = all[i][k];
      const double shared = std::min(score.tokens, all[i][k ^ 1].tokens);
      double token = 0;
      for (std::int64_t row = batch.answers[k].begin; row < batch.answers[k].end; ++row) {
        const auto at = static_cast<std::size_t>(row);
        if (batch.labels[at] < 0) continue;
        const double of_policy = -policy[i][at];
        const double of_reference = reference.empty() ? 0 : -reference[i][at];
        score.policy += of_policy;
        score.reference += of_reference;
        if (token >= shared) {
          score.policy_tail += of_policy;
          score.reference_tail += of_reference;
        }
        token += 1;
      }
    }
  }
  return all;
}

ObjectiveReport PreferenceObjective::weigh(Session& session, std::vector<MicroBatch>& batches,
                                           bool training) {
  check_answers(options_, batches);
  for (MicroBatch& batch : batches) std::ranges::fill(batch.loss_mask, 0.0F);
  const auto scored = scores(session, batches, training);
  const bool counts = session.pipeline().on_last_stage();
  const bool pairs = options_.by_pairs();
  double divergence = 0;
  if (!pairs) {
    Totals own;
    for_each_two(batches, [&](std::size_t i, std::size_t k) {
      own.count += counts ? 1 : 0;
      own.divergence += scored[i][k + 1].policy - scored[i][k + 1].reference;
    });
    const Totals all = summed(session, own);
    divergence = std::max(0.0, all.divergence / all.count);
  }
  Totals own;
  for_each_two(batches, [&](std::size_t i, std::size_t k) {
    if (!counts) return;
    own.count += 1;
    const Answer& answer = batches[i].answers[k];
    if (pairs) {
      const PairLoss pair = pair_loss(options_, scored[i][k], scored[i][k + 1]);
      own.loss += pair.loss;
      own.chosen += 1;
      own.rejected += 1;
      own.chosen_reward += pair.chosen_reward;
      own.rejected_reward += pair.rejected_reward;
      own.right += pair.chosen_reward > pair.rejected_reward ? 1 : 0;
      const double shared = std::min(scored[i][k].tokens, scored[i][k + 1].tokens);
      set_weights(answer, {pair.dchosen, pair.dchosen_tail, shared}, batches[i]);
      set_weights(batches[i].answers[k + 1], {pair.drejected, pair.drejected_tail, shared},
                  batches[i]);
      return;
    }
    const bool desirable = answer.role == AnswerRole::kDesirable;
    const AnswerLoss one = answer_loss(options_, scored[i][k], desirable, divergence);
    own.loss += one.loss;
    (desirable ? own.chosen : own.rejected) += 1;
    (desirable ? own.chosen_reward : own.rejected_reward) += one.reward;
    set_weights(answer, {.tail = one.dpolicy}, batches[i]);
  });
  Totals all = summed(session, own);
  all.divergence = divergence;
  return {.loss_sum = all.loss, .count = all.count, .figures = figures_of(all, pairs)};
}

}  // namespace piton
