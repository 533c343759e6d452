// The objective of reinforcement learning (session/objective.h): the policy gradient of answers
// that were drawn from the model (rollouts/policy_loss.h).
//
// Each sample of a batch is a question with one answer, whose tokens alone have labels. Before
// weigh(), loss_mask has the advantage of the answer at its labels.
//
// A batch of answers may have several updates: of its parts, and of all parts again. The first one
// computes the log-probabilities of all answers, which later ones are compared with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rollouts/policy_loss.h"
#include "rollouts/rollout_options.h"
#include "session/objective.h"

namespace piton {

struct PolicyLossRules {
  PolicyLossKind kind = PolicyLossKind::kDapo;
  PolicyClip clip;
  RatioLevel ratio = RatioLevel::kToken;
  std::int64_t longest_answer = 0;  // --max-completion-length
  bool means_of_parts = false;      // kDapo: the loss of a part is divided by its own tokens
};

class RolloutObjective final : public Objective {
 public:
  // `reference` must outlive it; null: the base under the adapters of the session in training. It
  // is not read if beta is 0.
  explicit RolloutObjective(const PolicyLossRules& rules, Session* reference = nullptr);

  // Of the answers, the same on all ranks: they are reported with the next batch.
  void report(std::vector<ObjectiveFigure> figures) { figures_ = std::move(figures); }

  // The next calls of weigh() are for `parts` of one batch of answers, one after another, and from
  // the first again. They must outlive these calls. Empty: each call is for another batch.
  void begin_batch(std::span<const std::vector<MicroBatch>> parts);

  ObjectiveReport weigh(Session& session, std::vector<MicroBatch>& batches, bool training) override;

 private:
  using TokenLosses = std::vector<std::vector<double>>;  // as Session::token_losses()
  struct PartLosses {
    TokenLosses policy;     // empty: they are not needed
    TokenLosses written;    // when the answers were written; empty: those of the policy
    TokenLosses reference;  // empty without one
    double tokens = 0;      // of all answers of the batch, by parts; 0: those of this part
  };
  PartLosses losses_of_part(Session& session, const std::vector<MicroBatch>& batches,
                            bool training);

  PolicyLossRules rules_;
  Session* reference_;
  std::vector<ObjectiveFigure> figures_;
  std::span<const std::vector<MicroBatch>> parts_;
  std::vector<TokenLosses> written_;  // of each of parts_, by the weights before its first update
  double tokens_of_parts_ = 0;
  std::size_t calls_ = 0;  // since begin_batch()
};

}  // namespace piton
