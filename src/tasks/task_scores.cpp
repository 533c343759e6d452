#include "tasks/task_scores.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "base/error.h"
#include "tasks/answer_rules.h"
#include "tasks/answers/instructions.h"
#include "tasks/answers/python_text.h"
#include "tasks/needlebench.h"

namespace piton {
namespace {

using Sizes = std::vector<double>;

// numpy.argmax(values / sizes): the first largest one.
std::size_t likeliest(const std::vector<double>& values, const Sizes& sizes) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] / sizes[i] > values[best] / sizes[best]) best = i;
  }
  return best;
}

// The share of the right choices in the probabilities of all.
SampleScore score_probability(const TaskSample& sample, const SampleResponse& response) {
  double all = 0;
  double right = 0;
  // Relative to the likeliest one, so that not all underflow.
  const double most = *std::ranges::max_element(response.log_likelihoods);
  for (std::size_t i = 0; i < sample.choices.size(); ++i) {
    const double probability = std::exp(response.log_likelihoods[i] - most);
    all += probability;
    if (std::ranges::count(sample.gold, static_cast<std::int64_t>(i)) > 0) right += probability;
  }
  const std::size_t best = likeliest(response.log_likelihoods, Sizes(sample.choices.size(), 1.0));
  return {.answer = sample.choices[best],
          .correct = std::ranges::count(sample.gold, static_cast<std::int64_t>(best)) > 0,
          .metrics = {{.metric = "acc", .value = right / all}}};
}

SampleScore score_choices(const Task& task, const TaskSample& sample,
                          const SampleResponse& response) {
  PITON_ASSERT(response.log_likelihoods.size() == sample.choices.size());
  if (task.scores_probability) return score_probability(sample, response);
  SampleScore score;
  for (const std::string& metric : task.metrics) {
    Sizes sizes(sample.choices.size(), 1.0);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::string& choice = sample.choices[i];
      if (metric == "acc_norm") sizes[i] = static_cast<double>(python_length(choice));
      if (metric == "acc_bytes") sizes[i] = static_cast<double>(choice.size());
    }
    const auto best = static_cast<std::int64_t>(likeliest(response.log_likelihoods, sizes));
    const bool right = std::find(sample.gold.begin(), sample.gold.end(), best) != sample.gold.end();
    score.metrics.push_back({.metric = metric, .value = right ? 1.0 : 0.0});
    if (metric != "acc") continue;
    score.correct = right;
    score.answer = sample.choices[static_cast<std::size_t>(best)];
  }
  return score;
}

// A pair of equal rewards is wrong.
SampleScore score_preference(const Task& task, const TaskSample& sample,
                             const SampleResponse& response) {
  const double better = response.log_likelihoods.at(0);
  const double worse = response.log_likelihoods.at(1);
  SampleScore score{.correct = better > worse};
  score.answer = sample.choices[score.correct ? 0 : 1];
  for (const std::string& metric : task.metrics)
    score.metrics.push_back({.metric = metric, .value = score.correct ? 1.0 : 0.0});
  return score;
}

SampleScore score_greedy(const Task& task, const SampleResponse& response) {
  SampleScore score;
  score.correct = response.greedy.at(0);
  for (const std::string& metric : task.metrics) {
    const double value =
        metric == "acc" ? (score.correct ? 1.0 : 0.0) : response.log_likelihoods.at(0);
    score.metrics.push_back({.metric = metric, .value = value});
  }
  return score;
}

SampleScore score_needle(const TaskSample& sample, const SampleResponse& response) {
  SampleScore score{.answer = response.text,
                    .correct = response.text.find(sample.keyword) != std::string::npos};
  score.metrics = {
      {.metric = "score", .value = needle_score(response.text, sample.answer, sample.keyword)},
      {.metric = "acc", .value = score.correct ? 1.0 : 0.0}};
  return score;
}

// Of a prompt with instructions that cannot be checked the others count.
SampleScore score_instructions(const TaskSample& sample, const SampleResponse& response) {
  std::vector<Instruction> instructions =
      read_instructions(read_json<nlohmann::json>(sample.answer), "instructions");
  const auto all = static_cast<double>(instructions.size());
  std::erase_if(instructions, [](const Instruction& one) { return !one.is_checked(); });
  const auto checked = static_cast<double>(instructions.size());
  SampleScore score;
  for (const bool loosely : {false, true}) {
    const std::vector<bool> verdicts = followed(instructions, response.text, loosely);
    const auto right = static_cast<double>(std::ranges::count(verdicts, true));
    const std::string_view way = loosely ? "loose" : "strict";
    score.metrics.push_back({.metric = fmt::format("prompt_level_{}_acc", way),
                             .value = right == all ? 1.0 : 0.0,
                             .weight = checked == all ? 1.0 : 0.0});
    score.metrics.push_back(
        {.metric = fmt::format("inst_level_{}_acc", way), .value = right, .weight = checked});
    if (loosely) continue;
    score.correct = right == all;
    score.answer = fmt::format("follows {} of {} instructions", right, all);
  }
  score.metrics.push_back({.metric = "inst_checked", .value = checked, .weight = all});
  return score;
}

SampleScore score_programs(const Task& task, const SampleResponse& response) {
  const std::vector<std::string>& verdicts = response.verdicts;
  const auto passed = std::ranges::count(verdicts, kPassed);
  SampleScore score{.correct = passed > 0};
  if (verdicts.size() == 1) score.answer = verdicts.front();
  if (verdicts.size() > 1) score.answer = fmt::format("{} of {} passed", passed, verdicts.size());
  // Without the 1 at its end: "pass@", "pass_at_".
  const std::string name = task.metrics.front().substr(0, task.metrics.front().size() - 1);
  for (const std::int64_t k : task.pass_at) {
    // Before the programs have run there is no verdict.
    const double value = verdicts.empty() ? 0 : pass_at_k(std::ssize(verdicts), passed, k);
    score.metrics.push_back(
        {.metric = name + std::to_string(k), .filter = task.filters.front().name, .value = value});
  }
  return score;
}

SampleScore score_text(const Task& task, const TaskSample& sample, const SampleResponse& response) {
  if (task.has_needles) return score_needle(sample, response);
  if (task.has_instructions) return score_instructions(sample, response);
  if (task.program != nullptr) return score_programs(task, response);
  SampleScore score;
  const auto normal = [&](const std::string& answer) {
    return task.normalize == nullptr ? answer : task.normalize(answer);
  };
  for (const AnswerFilter& filter : task.filters) {
    const std::string answer = filtered_answer(filter, response.text);
    const std::string own = normal(answer);
    const bool right = own == normal(sample.answer) ||
                       std::ranges::any_of(sample.other_answers, [&](const std::string& other) {
                         return own == normal(other);
                       });
    score.metrics.push_back(
        {.metric = task.metrics.front(), .filter = filter.name, .value = right ? 1.0 : 0.0});
    if (score.metrics.size() > 1) continue;
    score.answer = answer;
    score.correct = right;
  }
  return score;
}

SampleScore score_likelihood(const Task& task, const TaskSample& sample,
                             const SampleResponse& response) {
  SampleScore score;
  for (const std::string& metric : task.metrics) {
    const auto size =
        metric == "word_perplexity" ? python_word_count(sample.answer) : std::ssize(sample.answer);
    // A text without a token asks nothing.
    const auto& found = response.log_likelihoods;
    score.metrics.push_back({.metric = metric,
                             .value = found.empty() ? 0.0 : found.front(),
                             .weight = static_cast<double>(size)});
  }
  return score;
}

bool is_mean(const std::string& metric) {
  return metric.starts_with("acc") || metric == "exact_match" || metric.starts_with("pass") ||
         metric == "score" || metric.ends_with("_acc") || metric == "inst_checked";
}

// Of a mean over samples, not over what they consist of.
bool has_error(const std::string& metric) {
  return is_mean(metric) && !metric.starts_with("inst_");
}

struct Sums {
  double value = 0;
  double weight = 0;
  std::int64_t samples = 0;
};

double final_value(const std::string& metric, const Sums& sums) {
  const double mean = sums.value / sums.weight;
  if (is_mean(metric)) return mean;
  return metric == "bits_per_byte" ? -mean / std::numbers::ln2 : std::exp(-mean);
}

}  // namespace

double pass_at_k(std::int64_t n, std::int64_t c, std::int64_t k) {
  PITON_ASSERT(c >= 0 && c <= n && k >= 1 && k <= n);
  if (n - c < k) return 1;
  // C(n - c, k) / C(n, k), of which most factors are in both.
  double none = 1;
  for (std::int64_t i = n - c + 1; i <= n; ++i)
    none *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - none;
}

SampleScore score_sample(const Task& task, const TaskSample& sample,
                         const SampleResponse& response) {
  switch (task.kind) {
    case TaskKind::kMultipleChoice:
    case TaskKind::kNextToken:
      return score_choices(task, sample, response);
    case TaskKind::kLastWord:
    case TaskKind::kLastToken:
      return score_greedy(task, response);
    case TaskKind::kGeneration:
      return score_text(task, sample, response);
    case TaskKind::kPerplexity:
      return score_likelihood(task, sample, response);
    case TaskKind::kPreference:
      return score_preference(task, sample, response);
  }
  return {};
}

GroupScore group_score(const std::string& name, const std::vector<const SampleScore*>& scores,
                       const std::vector<std::string>& subjects) {
  GroupScore group{.name = name, .samples = std::ssize(scores)};
  if (scores.empty()) return group;
  for (std::size_t m = 0; m < scores.front()->metrics.size(); ++m) {
    const SampleMetric& first = scores.front()->metrics[m];
    Sums all;
    std::map<std::string, Sums> by_subject;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const SampleMetric& one = scores[i]->metrics[m];
      if (one.weight == 0) continue;
      for (Sums* sums : {&all, &by_subject[subjects[i]]}) {
        sums->value += one.value;
        sums->weight += one.weight;
        ++sums->samples;
      }
    }
    if (all.samples == 0) continue;  // no sample has it
    MetricValue value{.metric = first.metric,
                      .filter = first.filter,
                      .value = final_value(first.metric, all),
                      .higher_is_better = is_mean(first.metric)};
    const auto freedom = all.samples - std::ssize(by_subject);
    if (has_error(first.metric) && freedom > 0) {
      // The squares of all samples around the mean of their subject.
      double squares = 0;
      for (std::size_t i = 0; i < scores.size(); ++i) {
        if (scores[i]->metrics[m].weight == 0) continue;
        const Sums& own = by_subject[subjects[i]];
        const double off = scores[i]->metrics[m].value - own.value / own.weight;
        squares += off * off;
      }
      value.standard_error =
          std::sqrt(squares / static_cast<double>(freedom) / static_cast<double>(all.samples));
    }
    group.values.push_back(std::move(value));
  }
  return group;
}

std::vector<std::string> metrics_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::kMultipleChoice:
      return {"acc", "acc_norm", "acc_bytes"};
    case TaskKind::kNextToken:
    case TaskKind::kLastToken:
    case TaskKind::kPreference:
      return {"acc"};
    case TaskKind::kLastWord:
      return {"perplexity", "acc"};
    case TaskKind::kGeneration:
      return {"exact_match"};
    case TaskKind::kPerplexity:
      return {"word_perplexity", "byte_perplexity", "bits_per_byte"};
  }
  return {};
}

}  // namespace piton
