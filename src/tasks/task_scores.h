// Decisions about the answers of a model, and the metrics of a task.
//
// Names and formulas are those of lm-evaluation-harness 0.4 (lm_eval/api/task.py, metrics.py):
//
//   acc               the right choice has the largest log-likelihood; the first one on ties. Of
//                     kPreference: the better answer has the higher reward
//   acc_norm          the same, divided by the characters of the choice
//   acc_bytes         the same, divided by its UTF-8 bytes
//   exact_match       the answer that a filter finds in the text is the right one
//   prompt_level_strict_acc   the answer follows all instructions; inst_level_strict_acc: their
//                     share; ..._loose_acc: also without its first or last line or its stars
//   inst_checked      the share of instructions that can be checked; prompts with others do not
//                     count in prompt_level_...
//   pass@1            the program of the answer runs to its end; of several answers pass@k is the
//                     chance that one of k passes (pass_at_k())
//   score             of needlebench: needle_score() of the text (needlebench.h); acc: it has the
//                     keyword
//                     of rewardbench: of a section the mean of the accuracies of its subsets, with
//                     their published weights; of the task the mean of the four sections
//   perplexity        exp(-mean log-likelihood)
//   word_perplexity   exp(-sum of log-likelihoods / words), byte_perplexity of bytes
//   bits_per_byte     -sum of log-likelihoods / bytes / ln 2
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tasks/task_samples.h"

namespace piton {

// What a model says about a sample: a log-likelihood of each continuation (of a text: one), or a
// text that it generated.
struct SampleResponse {
  std::vector<double> log_likelihoods;  // kPreference: the rewards of both answers
  std::vector<bool> greedy;             // each token of the continuation is the likeliest one
  std::string text;                     // of several answers the first
  std::vector<std::string> texts;       // all, if there are several
  std::vector<std::string> verdicts;    // of answers that are code: kPassed, or why they failed
  bool operator==(const SampleResponse&) const = default;
};

inline constexpr const char* kPassed = "passed";

// One metric of one sample: a value, and what its sum is divided by.
struct SampleMetric {
  std::string metric;
  std::string filter = "none";
  double value = 0;
  double weight = 1;
};

struct SampleScore {
  std::string answer;  // the choice that the model prefers, or the answer found in its text
  bool correct = false;
  std::vector<SampleMetric> metrics;
};

SampleScore score_sample(const Task& task, const TaskSample& sample,
                         const SampleResponse& response);

struct MetricValue {
  std::string metric;
  std::string filter;
  double value = 0;
  std::optional<double> standard_error;  // of means over two samples or more
  bool higher_is_better = true;
};

struct GroupScore {
  std::string name;  // a subject, a group of subjects, or the task
  std::int64_t samples = 0;
  std::vector<MetricValue> values;
};

// The chance that one of k answers passes, of n that were drawn, of which c pass:
// 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374). k <= n.
double pass_at_k(std::int64_t n, std::int64_t c, std::int64_t k);

// The metrics of some samples of a task. `subjects`: the subject of each score. The standard error
// over several subjects is pooled (pooled_sample_stderr of lm-evaluation-harness).
GroupScore group_score(const std::string& name, const std::vector<const SampleScore*>& scores,
                       const std::vector<std::string>& subjects);

// The metrics that tasks of a kind may report.
std::vector<std::string> metrics_of(TaskKind kind);

}  // namespace piton
