// Asks a model the questions of a task, and scores its answers.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
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

// Ranks that hold the same model and share the requests: model `index` of `count` answers that part
// of the batches of one process.
struct RequestShares {
  Communicator* everyone = nullptr;  // all ranks of all models; null: one model
  int index = 0;                     // of this rank's model
  int count = 1;
  bool leads = true;  // the first rank of its model
};

struct EvaluationRules {
  RequestRules requests;
  AnswerSampling sampling;      // kGeneration; `requests` has the number of answers too
  std::int64_t batch_size = 8;  // texts that are generated at once
  // Texts that are scored are given to the model in rounds of about so many tokens, common
  // beginnings counted once; the journal gets the answers of each.
  std::int64_t round_tokens = 8192;
  std::optional<std::filesystem::path> journal;  // file; absent: a killed evaluation starts again
  bool writes = true;                            // this rank writes the journal
  RequestShares shares;
};

// How the texts of a task become sequences.
struct ReadingRules {
  bool adds_special_tokens = false;
  std::int64_t longest_sequence = 0;  // most tokens at once
  std::int64_t overlapping_eval = 0;  // as RequestRules has it; kPerplexity
};

struct TaskEvaluation {
  TaskData data;
  std::vector<SampleResponse> responses;  // one a sample
  std::vector<SampleScore> scores;        // one a sample
  std::int64_t cut_prompts = 0;           // requests that did not fit
  std::set<std::size_t> cut_samples;      // and their samples
  std::int64_t empty_answers = 0;         // generated texts without a character
  std::int64_t restored = 0;              // requests that the journal had answers to
  // Of the other requests, if nothing is generated: tokens that were computed, and those that must
  // be if common beginnings are computed once. With several models the sums of their shares.
  std::int64_t computed_tokens = 0;
  std::int64_t distinct_tokens = 0;
  ReadingRules reading;
  AnswerSampling sampling;  // kGeneration
};

ReadingRules reading_rules(const EvaluatedModel& model, const EvaluationRules& rules);

// Requests in the order of their tokens, so that those that begin alike follow each other.
// Collective over all ranks of all models, which get the same results.
// Throws as make_requests() and AnswerJournal do.
TaskEvaluation evaluate_task(EvaluatedModel& model, TaskData data, const EvaluationRules& rules,
                             Progress& progress);

// Removes the journal of an evaluation whose results are written.
void forget_journal(const EvaluationRules& rules);

}  // namespace piton
