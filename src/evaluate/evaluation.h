// Asks a model the questions of a task, and scores its answers.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/progress.h"
#include "comm/communicator.h"
#include "evaluate/answer_journal.h"
#include "evaluate/evaluated_model.h"
#include "evaluate/evaluation_requests.h"
#include "tasks/task_scores.h"

namespace piton {

// Ranks that hold the same model and share the requests. Each answers every `count`-th batch, the
// one with `index` first; batches are those of one process, so the answers are too.
struct RequestShares {
  Communicator* everyone = nullptr;  // all ranks of all models; null: one model
  int index = 0;                     // of this rank's model
  int count = 1;
  bool leads = true;  // the first rank of its model
};

struct EvaluationRules {
  RequestRules requests;
  std::int64_t batch_size = 8;                   // texts that are read or generated at once
  std::optional<std::filesystem::path> journal;  // file; absent: a killed evaluation starts again
  bool writes = true;                            // this rank writes the journal
  RequestShares shares;
};

struct TaskEvaluation {
  TaskData data;
  std::vector<SampleResponse> responses;  // one a sample
  std::vector<SampleScore> scores;        // one a sample
  std::int64_t cut_prompts = 0;           // requests that did not fit
  std::int64_t empty_answers = 0;         // generated texts without a character
  std::int64_t restored = 0;              // requests that the journal had answers to
  bool adds_special_tokens = false;
};

// Longest requests first, so that the time left is not underestimated and a model that needs too
// much memory fails at once. Collective over all ranks of all models, which get the same results.
// Throws as make_requests() and AnswerJournal do.
TaskEvaluation evaluate_task(EvaluatedModel& model, TaskData data, const EvaluationRules& rules,
                             Progress& progress);

// Removes the journal of an evaluation whose results are written.
void forget_journal(const EvaluationRules& rules);

}  // namespace piton
