// Results of an evaluation from the folder of `piton eval --save-results`: results.json, and
// TASK.jsonl with a line a question.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace piton {

struct ResultFigure {
  double value = 0;
  std::optional<double> standard_error;
  bool higher_is_better = true;
};

struct AnsweredQuestion {
  std::string id;      // subject and number: the same for all models
  std::string prompt;  // its last context
  std::string answer;
  std::string gold;
  bool correct = false;
  double margin = 0;  // by how much a wrong choice is likelier than the right one; 0: no choices
  std::map<std::string, double> metrics;  // "acc,none"
};

struct TaskResults {
  std::string prompt_hash;
  std::vector<AnsweredQuestion> questions;
};

struct ResultsRecord {
  std::string name;   // the folder's
  std::string model;  // --load, as given
  // By group ("mmlu", "mmlu_stem") in the order of the file, then metric and filter ("acc,none").
  std::vector<std::pair<std::string, std::map<std::string, ResultFigure>>> groups;
  std::map<std::string, std::int64_t> samples;  // by group
  std::map<std::string, std::int64_t> shots;    // by group
  std::map<std::string, TaskResults> tasks;
};

bool has_results(const std::filesystem::path& folder);

// Throws Error(kData) if `folder` has no results, or a file of them is damaged.
ResultsRecord read_results(const std::filesystem::path& folder);

// The difference b - a of the means of a metric over the questions that both have.
struct PairedDifference {
  std::int64_t questions = 0;
  std::int64_t better = 0;  // questions on which b has the larger value
  std::int64_t worse = 0;
  double mean = 0;
  std::optional<double> standard_error;  // of two questions or more
};
PairedDifference paired_difference(const TaskResults& a, const TaskResults& b,
                                   const std::string& metric);

}  // namespace piton
