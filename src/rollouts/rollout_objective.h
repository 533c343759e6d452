// The objective of reinforcement learning (session/objective.h): the policy gradient of answers
// that were drawn from the model (rollouts/policy_loss.h).
//
// Each sample of a batch is a question with one answer, whose tokens alone have labels. Before
// weigh(), loss_mask has the advantage of the answer at its labels.
#pragma once

#include <cstdint>
#include <vector>

#include "rollouts/rollout_options.h"
#include "session/objective.h"

namespace piton {

struct PolicyLossRules {
  PolicyLossKind kind = PolicyLossKind::kDapo;
  double beta = 0;                  // of the divergence from the reference
  std::int64_t longest_answer = 0;  // --max-completion-length
};

class RolloutObjective final : public Objective {
 public:
  // `reference` must outlive it; null: the base under the adapters of the session in training. It
  // is not read if beta is 0.
  explicit RolloutObjective(const PolicyLossRules& rules, Session* reference = nullptr)
      : rules_(rules), reference_(reference) {}

  // Of the answers, the same on all ranks: they are reported with the next batch.
  void report(std::vector<ObjectiveFigure> figures) { figures_ = std::move(figures); }

  ObjectiveReport weigh(Session& session, std::vector<MicroBatch>& batches, bool training) override;

 private:
  PolicyLossRules rules_;
  Session* reference_;
  std::vector<ObjectiveFigure> figures_;
};

}  // namespace piton
