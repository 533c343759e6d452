// The second models of a run: --ref-model, which preferences are compared with, --teacher-model,
// --reward-model, which judges answers, and the critic of --stage ppo.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "comm/communicator.h"
#include "preferences/preference_objective.h"
#include "rollouts/reward_model.h"
#include "rollouts/value_objective.h"
#include "session/session.h"
#include "train/run/pretrain_options.h"
#include "train/run/run_plan.h"

namespace piton {

// Throws Error(kUsage) for options of preferences and distillation that contradict each other, the
// data or the adapters: among them a loss with a reference where there is none.
void check_preference_options(const PretrainOptions& options);

// What --stage says of the head: rewards for rm; and of one label a number for classify, as
// Transformers understands num_labels.
void set_head_of_stage(PretrainOptions& options);

// Throws Error(kUsage) if the head of the model is not that which --stage learns: of a reward model
// for rm, over the vocabulary for the others.
void check_head(const PretrainOptions& options, const RunPlan& plan);

// Sets RunPlan::reference, teacher, judge and critic by the descriptions of the models that
// `options` name. Throws as open_objective().
void add_second_models(const PretrainOptions& options, RunPlan& plan);

// Fact of TrainState: weights_hash() (adapters/base_hash.h) of --ref-model.
inline constexpr const char* kReferenceFact = "weights of --ref-model";

// Fact of TrainState: the same of --teacher-model.
inline constexpr const char* kTeacherFact = "weights of --teacher-model";

// Fact of TrainState: the same of --reward-model.
inline constexpr const char* kRewardModelFact = "weights of --reward-model";

// What --stage and --teacher-model ask for. Later members use earlier ones.
struct RunObjective {
  std::unique_ptr<Session> reference;    // of --ref-model; null without it
  std::string reference_hash;            // for kReferenceFact; "" without it
  std::unique_ptr<Objective> objective;  // null: --stage sft
  std::unique_ptr<Session> teacher;      // null without --teacher-model
  std::string teacher_hash;              // for kTeacherFact
  std::unique_ptr<RewardModel> judge;    // of --reward-model; null without it
  std::string judge_hash;                // for kRewardModelFact
  std::unique_ptr<Critic> critic;        // of --stage ppo; null for others
};

// Collective. Opens the models of these options in the layout of `session`, the
// session in training, and sets the objective and the teacher of that. `options`: settled. Throws
// Error(kUsage) for a reference of another shape and a teacher of other tokens or that the layout
// cannot divide, Error(kData) for a model that cannot be read.
RunObjective open_objective(const PretrainOptions& options, const Machine& machine,
                            Communicator& everyone, Session& session);

// A line for the user about each of these models.
std::vector<std::string> notes_of_second_models(const PretrainOptions& options,
                                                const RunObjective& objective);

// What checkpoints compare of them.
void add_facts_of_second_models(const RunObjective& objective,
                                std::map<std::string, std::string>& facts);

}  // namespace piton
