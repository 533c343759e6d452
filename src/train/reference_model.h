// What a run that learns from preferences compares with: --stage and --ref-model.
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "comm/communicator.h"
#include "preferences/preference_objective.h"
#include "session/session.h"
#include "train/run/pretrain_options.h"

namespace piton {

// Throws Error(kUsage) for options of preferences that contradict each other, the data or the
// adapters: among them a loss with a reference where there is none.
void check_preference_options(const PretrainOptions& options);

// Fact of TrainState: weights_hash() (adapters/base_hash.h) of --ref-model.
inline constexpr const char* kReferenceFact = "weights of --ref-model";

// What --stage asks for. Later members use earlier ones.
struct RunObjective {
  std::unique_ptr<Session> reference;              // of --ref-model; null without it
  std::string reference_hash;                      // for kReferenceFact; "" without it
  std::unique_ptr<PreferenceObjective> objective;  // null: --stage sft
};

// Collective. Opens the model of --ref-model in the layout of `session`, the session in training,
// and sets the objective of that. Throws Error(kUsage) for a model of another shape, Error(kData)
// for one that cannot be read.
RunObjective open_objective(const PreferenceOptions& options, const Machine& machine,
                            Communicator& everyone, Session& session);

}  // namespace piton
