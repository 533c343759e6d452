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
  double clipped = 0;  // tokens
  double tokens = 0;
  double answers = 0;
  double batches = 0;
};

constexpr std::array<double PolicySums::*, 6> kPolicySums = {
    &PolicySums::loss,   &PolicySums::divergence, &PolicySums::clipped,
    &PolicySums::tokens, &PolicySums::answers,    &PolicySums::batches};

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

// Over the labels of rows [begin, end): how much likelier they are by now.
struct SinceWritten {
  double sum = 0;
  double mean = 0;
};
SinceWritten since_written(const MicroBatch& batch, std::int64_t begin, std::int64_t end,
                           const std::vector<double>& policy, const std::vector<double>& written) {
  double sum = 0;
  double count = 0;
  for (auto row = static_cast<std::size_t>(begin); std::cmp_less(row, end); ++row) {
    if (batch.labels[row] < 0) continue;
    sum += written[row] - policy[row];
    count += 1;
  }
  return {.sum = sum, .mean = sum / std::max(count, 1.0)};
}

}  // namespace

RolloutObjective::RolloutObjective(const PolicyLossRules& rules, Session* reference)
    : rules_(rules), reference_(reference) {
  PITON_ASSERT(rules.kind != PolicyLossKind::kRloo || rules.clip.beta == 0,
               "the divergence of whole answers is in their rewards");
  if (rules.kind == PolicyLossKind::kCispo) rules_.clip.form = PolicyForm::kCispo;
  if (rules.kind == PolicyLossKind::kSapo) rules_.clip.form = PolicyForm::kSapo;
}

void RolloutObjective::begin_batch(std::span<const std::vector<MicroBatch>> parts) {
  parts_ = parts;
  written_.clear();
  calls_ = 0;
}

// The losses of tokens, which are negative log-probabilities, as far as they are needed.
RolloutObjective::PartLosses RolloutObjective::losses_of_part(
    Session& session, const std::vector<MicroBatch>& batches, bool training) {
  PartLosses found;
  const std::size_t call = calls_++;
  const std::size_t part = parts_.empty() ? 0 : call % parts_.size();
  if (!parts_.empty() && call == 0) {
    PolicySums own;
    for (const std::vector<MicroBatch>& one : parts_) {
      written_.push_back(session.token_losses(one, {.training = training}));
      if (!session.pipeline().on_last_stage()) continue;
      for (const MicroBatch& batch : one)
        own.tokens += labels_in(batch, 0, std::ssize(batch.labels));
    }
    tokens_of_parts_ = summed_policy(session, own).tokens;
  }
  const bool later = call > 0 && !parts_.empty();
  if (later) {
    found.policy = session.token_losses(batches, {.training = training});
    found.written = written_[part];
  } else if (!parts_.empty()) {
    found.policy = written_[part];
  }
  if (!parts_.empty()) found.tokens = tokens_of_parts_ / static_cast<double>(parts_.size());
  const bool reads_policy = rules_.clip.form == PolicyForm::kCispo || rules_.clip.beta > 0;
  if (found.policy.empty() && reads_policy)
    found.policy = session.token_losses(batches, {.training = training});
  if (rules_.clip.beta == 0) return found;
  found.reference = reference_ != nullptr ? reference_->token_losses(batches, {})
                                          : session.token_losses(batches, {.adapters = false});
  return found;
}

ObjectiveReport RolloutObjective::weigh(Session& session, std::vector<MicroBatch>& batches,
                                        bool training) {
  const PartLosses losses = losses_of_part(session, batches, training);
  const bool counts = session.pipeline().on_last_stage();
  const bool by_answers =
      rules_.kind == PolicyLossKind::kGrpo || rules_.kind == PolicyLossKind::kSapo;
  const bool whole_answers = rules_.kind == PolicyLossKind::kRloo;
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
      const std::int64_t end = begin + batch.sequence;
      const double tokens = labels_in(batch, begin, end);
      own.answers += 1;
      own.tokens += tokens;
      double share = 1;
      if (by_answers) share = 1 / std::max(tokens, 1.0);
      if (rules_.kind == PolicyLossKind::kBnpo) share = 1 / std::max(of_batch, 1.0);
      // Its tokens have the loss of the answer, which each of their slopes is one of.
      const double of_loss = whole_answers ? 1 / std::max(tokens, 1.0) : share;
      const bool compared = !losses.written.empty();
      const bool by_answer = compared && (whole_answers || rules_.ratio == RatioLevel::kSequence);
      SinceWritten of_answer;
      if (by_answer)
        of_answer = since_written(batch, begin, end, losses.policy[i], losses.written[i]);
      for (auto row = static_cast<std::size_t>(begin); std::cmp_less(row, end); ++row) {
        if (batch.labels[row] < 0) continue;
        TokenPolicy token{.since_written = whole_answers ? of_answer.sum : of_answer.mean};
        if (!losses.policy.empty()) token.policy = -losses.policy[i][row];
        if (compared && !by_answer)
          token.since_written = losses.written[i][row] - losses.policy[i][row];
        if (!losses.reference.empty())
          token.from_reference = losses.policy[i][row] - losses.reference[i][row];
        const TokenPolicyLoss one = token_policy_loss(advantages[row], token, rules_.clip);
        own.loss += of_loss * one.loss;
        own.divergence += one.divergence;
        own.clipped += one.clipped ? 1 : 0;
        batch.loss_mask[row] = static_cast<float>(-share * one.slope);
      }
    }
  }
  const PolicySums sum = summed_policy(session, own);
  const double tokens = std::max(sum.tokens, 1.0);
  // dapo
  double count = losses.tokens > 0 && !rules_.means_of_parts ? losses.tokens : tokens;
  if (by_answers || whole_answers) count = sum.answers;
  if (rules_.kind == PolicyLossKind::kBnpo) count = sum.batches;
  if (rules_.kind == PolicyLossKind::kDrGrpo)
    count = sum.answers * static_cast<double>(rules_.longest_answer);
  std::vector<ObjectiveFigure> figures = std::exchange(figures_, {});
  if (rules_.clip.beta > 0) figures.push_back({"kl", sum.divergence, tokens});
  if (!parts_.empty() && rules_.kind != PolicyLossKind::kSapo)
    figures.push_back({"clip_ratio", sum.clipped, tokens});
  return {.loss_sum = sum.loss, .count = count, .figures = std::move(figures)};
}

}  // namespace piton
