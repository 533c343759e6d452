#include "rollouts/rollout_objective.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "comm/gathered_values.h"
#include "rollouts/policy_loss.h"
#include "session/session.h"

namespace piton {
namespace {

// Numbers that are summed over ranks.
struct PolicySums {
  double loss = 0;  // each token by its own divisor, but for what all tokens are divided by
  double divergence = 0;
  double tokens = 0;
  double answers = 0;
  double batches = 0;
};

constexpr std::array<double PolicySums::*, 5> kPolicySums = {
    &PolicySums::loss, &PolicySums::divergence, &PolicySums::tokens, &PolicySums::answers,
    &PolicySums::batches};

PolicySums summed_policy(Session& session, const PolicySums& own) {
  PolicySums sum;
  for (const PolicySums& one : gathered_values(session.mesh().group(kLossAxes), own)) {
    for (const auto field : kPolicySums) sum.*field += one.*field;
  }
  return sum;
}

double labels_in(const MicroBatch& batch, std::int64_t begin, std::int64_t end) {
  return static_cast<double>(std::count_if(batch.labels.begin() + begin, batch.labels.begin() + end,
                                           [](std::int32_t label) { return label >= 0; }));
}

}  // namespace

ObjectiveReport RolloutObjective::weigh(Session& session, std::vector<MicroBatch>& batches,
                                        bool training) {
  using TokenLosses = std::vector<std::vector<double>>;
  TokenLosses policy;
  TokenLosses reference;
  if (rules_.beta > 0) {
    policy = session.token_losses(batches, {.training = training});
    reference = reference_ != nullptr ? reference_->token_losses(batches, {})
                                      : session.token_losses(batches, {.adapters = false});
  }
  const bool counts = session.pipeline().on_last_stage();
  PolicySums own;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    MicroBatch& batch = batches[i];
    const std::vector<float> advantages =
        std::exchange(batch.loss_mask, std::vector<float>(batch.loss_mask.size()));
    if (!counts) continue;
    own.batches += 1;
    const double of_batch = labels_in(batch, 0, std::ssize(batch.labels));
    for (std::int64_t sample = 0; sample < batch.samples; ++sample) {
      const std::int64_t begin = sample * batch.sequence;
      const double tokens = labels_in(batch, begin, begin + batch.sequence);
      own.answers += 1;
      own.tokens += tokens;
      double share = 1;
      if (rules_.kind == PolicyLossKind::kGrpo) share = 1 / std::max(tokens, 1.0);
      if (rules_.kind == PolicyLossKind::kBnpo) share = 1 / std::max(of_batch, 1.0);
      for (auto row = static_cast<std::size_t>(begin); std::cmp_less(row, begin + batch.sequence);
           ++row) {
        if (batch.labels[row] < 0) continue;
        // The losses of tokens are negative log-probabilities.
        const double difference = policy.empty() ? 0 : policy[i][row] - reference[i][row];
        const TokenPolicyLoss one = token_policy_loss(advantages[row], rules_.beta, difference);
        own.loss += share * one.loss;
        own.divergence += one.divergence;
        batch.loss_mask[row] = static_cast<float>(-share * one.slope);
      }
    }
  }
  const PolicySums sum = summed_policy(session, own);
  double count = std::max(sum.tokens, 1.0);  // dapo
  if (rules_.kind == PolicyLossKind::kGrpo) count = sum.answers;
  if (rules_.kind == PolicyLossKind::kBnpo) count = sum.batches;
  if (rules_.kind == PolicyLossKind::kDrGrpo)
    count = sum.answers * static_cast<double>(rules_.longest_answer);
  std::vector<ObjectiveFigure> figures = std::exchange(figures_, {});
  if (rules_.beta > 0) figures.push_back({"kl", sum.divergence, std::max(sum.tokens, 1.0)});
  return {.loss_sum = sum.loss, .count = count, .figures = std::move(figures)};
}

}  // namespace piton
