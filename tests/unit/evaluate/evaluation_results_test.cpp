#include "evaluate/evaluation_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(EvaluationResults, AreAMarkdownTable) {
  const std::string table = results_table({evaluated_mmlu()});
  EXPECT_THAT(table, HasSubstr("|mmlu|lm-eval|none|5|acc|↑|0.4000|±|0."));
  EXPECT_THAT(table, HasSubstr("| - mmlu_anatomy|lm-eval|none|5|acc|↑|0.3333|±|0.3333|3|\n"));
}

TEST(EvaluationResults, HaveALineForEachSample) {
  const std::string lines = sample_lines(evaluated_mmlu());
  const auto first = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  EXPECT_EQ(first["id"], 0);
  EXPECT_EQ(first["subject"], "anatomy");
  EXPECT_EQ(first["log_likelihoods"], nlohmann::json({-2.0, -1.0, -2.0, -2.0}));
  EXPECT_EQ(first["answer"], "B");
  EXPECT_EQ(first["correct"], false);
  EXPECT_THAT(first["prompt"].get<std::string>(), HasSubstr("\nAnswer:"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 5);
}

}  // namespace
}  // namespace piton
