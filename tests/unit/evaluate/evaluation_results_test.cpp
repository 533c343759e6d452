#include "evaluate/evaluation_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/files/files.h"
#include "base/json.h"
#include "support/scripted_model.h"
#include "tasks/task_table.h"

namespace piton {
namespace {

using testing::HasSubstr;

TaskEvaluation evaluated_mmlu() {
  test::ScriptedModel model;
  model.likelihood = [](const std::string&, const std::string& continuation) {
    return continuation == " B" ? -1.0 : -2.0;
  };
  SilentProgress progress;
  return evaluate_task(
      model,
      load_task(find_task("mmlu", {}),
                {.paths = {std::string(PITON_SOURCE_DIR) + "/tests/golden/evaluation/data"}}),
      {}, progress);
}

TEST(EvaluationResults, HaveTheTaskItsGroupsAndItsSubjects) {
  const auto json =
      results_json({evaluated_mmlu()}, {.model = "run", .model_hash = "ab", .tokenizer = "hash"});
  EXPECT_EQ(json["results"]["mmlu"]["acc,none"], 0.4);
  EXPECT_EQ(json["results"]["mmlu_stem"]["acc,none"], 1.0 / 3);
  EXPECT_EQ(json["results"]["mmlu_humanities"]["acc,none"], 0.5);
  EXPECT_EQ(json["results"]["mmlu_world_religions"]["acc,none"], 0.5);
  EXPECT_TRUE(json["groups"].contains("mmlu_stem"));
  EXPECT_FALSE(json["groups"].contains("mmlu_anatomy"));
  EXPECT_EQ(json["model_hash"], "ab");
  EXPECT_EQ(json["n-samples"]["mmlu"], 5);
  EXPECT_EQ(json["n-shot"]["mmlu"], 5);
  EXPECT_EQ(json["configs"]["mmlu"]["protocol"], "lm-eval");
  EXPECT_EQ(json["configs"]["mmlu"]["cut_prompts"], 0);
  EXPECT_EQ(json["configs"]["mmlu"]["few_shot_ids"]["anatomy"].size(), 5U);
  EXPECT_EQ(json["configs"]["mmlu"]["prompt_hash"].get<std::string>().size(), 32U);
}

TEST(EvaluationResults, ReplaceThoseOfTheSameEvaluationAlone) {
  const TaskEvaluation evaluation = evaluated_mmlu();
  const EvaluatedSource source = {
      .model = "run", .model_hash = "ab", .adapters_hash = "cd", .tokenizer = "hash"};
  const std::string found = results_json({evaluation}, source).dump();
  const std::vector<PlannedTask> planned = {{evaluation.data, evaluation.reading, {}}};
  EXPECT_EQ(other_results(found, planned, source), "");
  const auto of_source = [&](void (*change)(EvaluatedSource&)) {
    EvaluatedSource other = source;
    change(other);
    return other_results(found, planned, other);
  };
  EXPECT_EQ(of_source([](EvaluatedSource& one) { one.model = "moved"; }), "");
  EXPECT_EQ(of_source([](EvaluatedSource& one) { one.model_hash = "ef"; }),
            "of other weights of run");
  EXPECT_EQ(of_source([](EvaluatedSource& one) {
              one.model = "b";
              one.model_hash = "ef";
            }),
            "of another model, run; this one is b");
  EXPECT_EQ(of_source([](EvaluatedSource& one) { one.adapters_hash = ""; }),
            "of run with adapters");
  EXPECT_EQ(of_source([](EvaluatedSource& one) { one.adapters_hash = "ef"; }),
            "of run with other adapters");
  EXPECT_EQ(of_source([](EvaluatedSource& one) { one.tokenizer = ""; }), "of another tokenizer");
  ReadingRules other = evaluation.reading;
  other.adds_special_tokens = true;
  EXPECT_EQ(other_results(found, {{evaluation.data, other, {}}}, source),
            "of mmlu with special_tokens: false, here true");
  other = evaluation.reading;
  other.longest_sequence = 7;
  EXPECT_EQ(other_results(found, {{evaluation.data, other, {}}}, source),
            fmt::format("of mmlu with longest_sequence: {}, here 7",
                        evaluation.reading.longest_sequence));
  TaskData changed = evaluation.data;
  changed.prompt_hash = "";
  EXPECT_EQ(other_results(found, {{changed, evaluation.reading, {}}}, source),
            "of mmlu with other questions or prompts");
  changed.task.name = "piqa";
  EXPECT_EQ(other_results(found, {{changed, evaluation.reading, {}}}, source),
            "of mmlu too, which is not evaluated now");
  EXPECT_EQ(other_results(found, {{evaluation.data, evaluation.reading, {.answers = 2}}}, source),
            "of mmlu with num_samples: not set, here 2");
  EXPECT_EQ(other_results("{", planned, source), "not of piton eval");
}

TEST(EvaluationResults, AreAMarkdownTable) {
  const std::string table = results_table({evaluated_mmlu()});
  EXPECT_THAT(table, HasSubstr("|mmlu|lm-eval|none|5|acc|↑|0.4000|±|0."));
  EXPECT_THAT(table, HasSubstr("| - mmlu_anatomy|lm-eval|none|5|acc|↑|0.3333|±|0.3333|3|\n"));
}

TEST(EvaluationResults, HaveALineForEachSample) {
  const std::string lines = sample_lines(evaluated_mmlu());
  const auto first = read_json<nlohmann::json>(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first["id"], 0);
  EXPECT_EQ(first["subject"], "anatomy");
  EXPECT_EQ(first["log_likelihoods"], nlohmann::json({-2.0, -1.0, -2.0, -2.0}));
  EXPECT_EQ(first["answer"], "B");
  EXPECT_EQ(first["correct"], false);
  EXPECT_THAT(first["prompt"].get<std::string>(), HasSubstr("\nAnswer:"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 5);
}

// Pairs of subsets, of which so many are right.
TaskEvaluation evaluated_rewardbench(const nlohmann::json& pairs) {
  TaskEvaluation evaluation;
  evaluation.data.task = find_task("rewardbench", {});
  for (const auto& [subset, counts] : pairs.items()) {
    for (int i = 0; i < counts[1]; ++i) {
      evaluation.data.samples.push_back({.subject = subset});
      evaluation.scores.push_back(
          {.metrics = {{.metric = "acc", .value = i < counts[0] ? 1. : 0.}}});
    }
  }
  return evaluation;
}

// tests/golden/evaluation/rewardbench_sections.json, made by tools/oracle/rewardbench_sections.py.
TEST(EvaluationResults, OfRewardBenchWeightItsSubsets) {
  const auto golden = read_json<nlohmann::json>(read_text_file(
      std::string(PITON_SOURCE_DIR) + "/tests/golden/evaluation/rewardbench_sections.json"));
  ASSERT_EQ(golden["cases"].size(), 3U);
  for (const auto& one : golden["cases"]) {
    const auto results = results_json({evaluated_rewardbench(one["pairs"])}, {})["results"];
    std::size_t sections = 0;
    for (const auto& [name, values] : results.items()) {
      if (!values.contains("score,none") || name == "rewardbench") continue;
      const auto wanted =
          one["sections"].at(name.substr(std::strlen("rewardbench_"))).get<double>();
      EXPECT_NEAR(values["score,none"].get<double>(), wanted, 1e-12) << name;
      ++sections;
    }
    EXPECT_EQ(sections, one["sections"].size());
    EXPECT_EQ(results["rewardbench"].contains("score,none"), one.contains("score"));
    if (!one.contains("score")) continue;
    EXPECT_NEAR(results["rewardbench"]["score,none"].get<double>(), one["score"].get<double>(),
                1e-12);
    EXPECT_EQ(results["rewardbench"]["score_stderr,none"], "N/A");
  }
}

}  // namespace
}  // namespace piton
