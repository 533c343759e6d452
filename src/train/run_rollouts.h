// What a run of --stage grpo or ppo has in the place of corpora: questions, and the model's answers
// to them.
#pragma once

#include <memory>
#include <vector>

#include "base/log.h"
#include "comm/communicator.h"
#include "comm/mesh.h"
#include "rollouts/rollout_objective.h"
#include "rollouts/rollouts.h"
#include "text/chat/chat_template_files.h"
#include "train/run/pretrain_options.h"
#include "train/run/run_data.h"
#include "train/run/run_plan.h"

namespace piton {

// Throws Error(kUsage) for options of rewards that contradict each other, the data or the layout,
// and for such options of a run of another stage.
void check_rollout_options(const PretrainOptions& options);

// Throws Error(kUsage) if batches of the run cannot be divided into groups of answers.
void check_rollout_batches(const PretrainOptions& options, const RunPlan& plan);

struct QuestionTexts {
  const Tokenizer* tokenizer = nullptr;  // null: the run has none
  const ModelChatTemplates& templates;
  const OwnSamples& samples;  // of the program: none can be read
};

struct RunQuestions {
  std::shared_ptr<const Questions> training;
  std::shared_ptr<const Questions> validation;  // null: none are held out
  std::int64_t validated = 0;                   // of these, in an evaluation
};

// As Session::train_step().
struct RolloutStep {
  std::int64_t consumed_samples = 0;
  GroupRates learning_rate;
  double weight_decay = 0;
};

class RunRollouts {
 public:
  RunRollouts(const RolloutSettings& settings, const RunPlan& plan, RunQuestions questions,
              const Tokenizer& tokenizer)
      : settings_(settings),
        batches_(plan.batches),
        micro_batch_(plan.micro_batch),
        sizes_(plan.micro_batch_sizes),
        questions_(std::move(questions)),
        tokenizer_(tokenizer) {}

  // Writes and learns the batch of answers after `consumed` samples, in one or several updates. The
  // report has the means of them; it is skipped if all of them were. Collective. `objective`: of
  // the session in models.policy. Throws as Rollouts::next().
  StepReport train_step(const RolloutModels& models, Objective& objective, const RolloutStep& step,
                        Communicator& everyone);
  // Whether the run has held-out questions, and what is found with them. Collective.
  bool evaluates() const { return questions_.validation != nullptr; }
  std::vector<ObjectiveFigure> evaluate(const RolloutModels& models, Communicator& everyone);
  // Tokens of each row of the last batch.
  std::int64_t row_length() const { return row_length_; }
  // Of the last batch, on the first rank: lines of completions.jsonl.
  std::string completions(std::int64_t iteration) const;
  const std::shared_ptr<const Questions>& questions() const { return questions_.training; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  Rollouts& opened(Communicator& everyone);
  BatchPlace place(Mesh& mesh, std::int64_t consumed) const;

  RolloutSettings settings_;
  BatchSizes batches_;
  std::int64_t micro_batch_;
  std::vector<std::int64_t> sizes_;
  RunQuestions questions_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<Rollouts> rollouts_;  // made by the first batch, which starts programs
  std::int64_t row_length_ = 0;
  std::vector<nlohmann::ordered_json> completions_;
};

// Reads the questions of --data-path and --valid-data-path. Throws as Questions(), and
// Error(kUsage) without a tokenizer.
std::unique_ptr<RunRollouts> open_rollouts(const PretrainOptions& options, const RunPlan& plan,
                                           const QuestionTexts& texts, Log& log);

// The questions in the place of corpora: what checkpoints compare of them. `notes`: as of RunData.
std::unique_ptr<RunData> data_of_questions(const RunRollouts& rollouts, PretrainOptions options,
                                           const RunPlan& plan, Log& notes);

}  // namespace piton
