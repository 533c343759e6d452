// The objective of training a reward model (session/objective.h; model/label_head.h): the loss is
// the mean over the pairs of the global batch (preferences/preference_loss.h). The reward of a text
// is read at its last token.
#pragma once

#include <vector>

#include "preferences/preference_options.h"
#include "session/objective.h"
#include "session/session.h"

namespace piton {

class RewardObjective final : public Objective {
 public:
  explicit RewardObjective(const PreferenceOptions& options) : options_(options) {}

  // The labels of the batches become those of rewards. Throws Error(kData) for a batch whose
  // samples are no pairs of answers.
  ObjectiveReport weigh(Session& session, std::vector<MicroBatch>& batches, bool training) override;

 private:
  PreferenceOptions options_;
};

}  // namespace piton
