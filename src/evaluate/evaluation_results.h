// Results of evaluations: the table, results.json and a line of JSON a sample.
//
// results.json has the objects that readers of lm-evaluation-harness know: "results" ("acc,none",
// "acc_stderr,none"), "groups", "n-shot", "n-samples", "higher_is_better", "configs". "configs"
// says what decides about comparability: protocol, hash of the prompts, examples, special tokens,
// prompts that were cut. "computation" says how many tokens were computed for scores, of how many
// distinct ones; it is the only part that differs after a kill, or on other ranks.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "evaluate/evaluation.h"

namespace piton {

// The task as a whole, then groups of its subjects, then subjects.
std::vector<GroupScore> scores_of(const TaskEvaluation& evaluation);

// A Markdown table of all scores, a line a metric.
std::string results_table(const std::vector<TaskEvaluation>& evaluations);

struct EvaluatedSource {
  std::string model;          // as given: --load
  std::string model_hash;     // of its weights: that of `inspect --hash`
  std::string adapters_hash;  // of the weights of its adapters; "": it has none
  std::string tokenizer;      // hash of its contents
  std::string version;        // of Piton, with its commit
};
nlohmann::ordered_json results_json(const std::vector<TaskEvaluation>& evaluations,
                                    const EvaluatedSource& source);

// A task that is going to be evaluated.
struct PlannedTask {
  const TaskData& data;
  ReadingRules reading;
  AnswerSampling sampling;
};

// Why results of `planned` must not replace `text`, that of a results.json: it is "of another
// model, ...", or of other settings of a task, or has tasks that are not planned. "": they may.
std::string other_results(const std::string& text, const std::vector<PlannedTask>& planned,
                          const EvaluatedSource& source);

// One object a sample: id, subject, index, prompt, cut (true: the prompt did not fit),
// continuations, log_likelihoods, rewards or text, gold, answer, correct, shots, metrics.
std::string sample_lines(const TaskEvaluation& evaluation);

}  // namespace piton
