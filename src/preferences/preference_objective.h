// The objective of training by preferences (session/objective.h): the loss is the mean over the
// pairs of the global batch, of kto over its answers.
//
// The reference is another session with other weights, or the session in training without its
// adapters. It computes without dropout. Nothing is kept between steps, so a resumed run needs no
// more than the weights of the reference.
#pragma once

#include <vector>

#include "preferences/preference_loss.h"
#include "session/objective.h"
#include "session/session.h"

namespace piton {

class PreferenceObjective final : public Objective {
 public:
  // `reference` must outlive it; null: the base under the adapters of the session in training.
  explicit PreferenceObjective(const PreferenceOptions& options, Session* reference = nullptr)
      : options_(options), reference_(reference) {}

  // Throws Error(kData) for a batch whose samples have no answers, and for an answer without a
  // token to learn.
  ObjectiveReport weigh(Session& session, std::vector<MicroBatch>& batches, bool training) override;

 private:
  using TokenLosses = std::vector<std::vector<double>>;
  std::vector<std::vector<ScoredAnswer>> scores(Session& session,
                                                const std::vector<MicroBatch>& batches,
                                                bool training);

  PreferenceOptions options_;
  Session* reference_;
};

}  // namespace piton
