#include "preferences/reward_objective.h"

#include <algorithm>
#include <array>

#include "comm/gathered_values.h"
#include "model/label_head.h"
#include "preferences/checked_answers.h"
#include "preferences/preference_loss.h"

namespace piton {
namespace {

// Numbers that are summed over ranks. Only the last stage has others than 0.
struct RewardTotals {
  double loss = 0;
  double pairs = 0;
  double chosen = 0;  // rewards
  double rejected = 0;
  double right = 0;  // pairs whose chosen answer has the higher reward
};

constexpr std::array<double RewardTotals::*, 5> kRewardTotals = {
    &RewardTotals::loss, &RewardTotals::pairs, &RewardTotals::chosen, &RewardTotals::rejected,
    &RewardTotals::right};

std::size_t last_row(const Answer& answer) { return static_cast<std::size_t>(answer.end - 1); }

}  // namespace

ObjectiveReport RewardObjective::weigh(Session& session, std::vector<MicroBatch>& batches,
                                       bool training) {
  check_answers(options_, batches);
  for (MicroBatch& batch : batches) {
    std::ranges::fill(batch.loss_mask, 0.0F);
    std::ranges::fill(batch.labels, kNoLabel);
    for (const Answer& answer : batch.answers) batch.labels[last_row(answer)] = kRewardLabel;
  }
  const std::vector<std::vector<double>> rewards =
      session.token_losses(batches, {.training = training});
  RewardTotals own;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (rewards[i].empty()) continue;  // of another stage
    MicroBatch& batch = batches[i];
    for (std::size_t k = 0; k + 1 < batch.answers.size(); k += 2) {
      const std::size_t chosen = last_row(batch.answers[k]);
      const std::size_t rejected = last_row(batch.answers[k + 1]);
      const PairLoss pair = reward_loss(options_, rewards[i][chosen], rewards[i][rejected]);
      batch.loss_mask[chosen] = static_cast<float>(pair.dchosen);
      batch.loss_mask[rejected] = static_cast<float>(pair.drejected);
      own.loss += pair.loss;
      own.pairs += 1;
      own.chosen += pair.chosen_reward;
      own.rejected += pair.rejected_reward;
      own.right += pair.chosen_reward > pair.rejected_reward ? 1 : 0;
    }
  }
  RewardTotals all;
  for (const RewardTotals& one : gathered_values(session.mesh().group(kLossAxes), own)) {
    for (const auto field : kRewardTotals) all.*field += one.*field;
  }
  return {.loss_sum = all.loss,
          .count = all.pairs,
          .figures = {{"rewards_chosen", all.chosen, all.pairs},
                      {"rewards_rejected", all.rejected, all.pairs},
                      {"rewards_margin", all.chosen - all.rejected, all.pairs},
                      {"rewards_accuracy", all.right, all.pairs}}};
}

}  // namespace piton
