// Prompts and scores of tasks are those of lm-evaluation-harness for the same answers:
// tests/golden/evaluation/tasks.jsonl, made by tools/oracle/evaluation_tasks.py.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/files/files.h"
#include "base/json.h"
#include "tasks/task_scores.h"
#include "tasks/task_table.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::vector<std::string>;

const fs::path kAnswered = fs::path(PITON_SOURCE_DIR) / "tests" / "golden" / "evaluation";

SampleResponse response_of(const Json& golden) {
  SampleResponse response{.text = golden.value("text", ""), .verdicts = {"exit code 1: no"}};
  if (golden.contains("log_likelihoods"))
    response.log_likelihoods = golden["log_likelihoods"].get<std::vector<double>>();
  return response;
}

// lm-evaluation-harness has a list of values where a metric has one of each instruction.
void compare_metric(const SampleMetric& metric, const Json& wanted) {
  SCOPED_TRACE(metric.metric);
  if (!wanted.is_array()) {
    const double value = wanted.is_boolean() ? (wanted.get<bool>() ? 1 : 0) : wanted.get<double>();
    EXPECT_NEAR(metric.value, value, 1e-12);
    return;
  }
  EXPECT_EQ(metric.value, std::ranges::count(wanted, Json(true)));
  EXPECT_EQ(metric.weight, wanted.size());
}

TEST(GoldenTasks, HaveThePromptsAndScoresOfLmEvaluationHarness) {
  std::istringstream lines(read_text_file(kAnswered / "tasks.jsonl"));
  std::size_t compared = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto golden = read_json<Json>(line);
    SCOPED_TRACE(golden["task"].get<std::string>() + " " + golden["subject"].get<std::string>());
    const Task task = find_task(golden["task"], {});
    TaskData data = load_task(task, {.paths = {(kAnswered / "data" / task.name).string()},
                                     .num_shots = golden["num_shots"].get<std::int64_t>()});
    const std::string subject = golden["subject"];
    std::erase_if(data.samples, [&](const TaskSample& one) { return one.subject != subject; });
    ASSERT_EQ(data.samples.size(), golden["samples"].size());
    for (std::size_t i = 0; i < data.samples.size(); ++i) {
      SCOPED_TRACE(i);
      const TaskSample& sample = data.samples[i];
      const Json& wanted = golden["samples"][i];
      EXPECT_EQ(sample.contexts, wanted["contexts"].get<Texts>());
      EXPECT_EQ(sample.continuations, wanted["continuations"].get<Texts>());
      const SampleResponse response = response_of(wanted);
      const SampleScore score = score_sample(task, sample, response);
      EXPECT_EQ(score.metrics.size(),
                task.metrics.size() * std::max<std::size_t>(1, task.filters.size()));
      for (const SampleMetric& metric : score.metrics)
        compare_metric(metric, wanted["metrics"].at(metric.metric + "," + metric.filter));
      if (task.program != nullptr) {
        EXPECT_EQ(task.program(sample.code, response.text),
                  golden["programs"][i].get<std::string>());
      }
      ++compared;
    }
  }
  EXPECT_GE(compared, 60U);
}

}  // namespace
}  // namespace piton
