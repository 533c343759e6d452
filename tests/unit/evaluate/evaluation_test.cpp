#include "evaluate/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/scripted_model.h"
#include "support/temp_folder.h"
#include "tasks/task_table.h"

namespace piton {
namespace {

using test::ScriptedModel;

const std::string kData = std::string(PITON_SOURCE_DIR) + "/tests/golden/evaluation/data";

TaskEvaluation evaluate(EvaluatedModel& model, const TaskData& data,
                        const EvaluationRules& rules = {}) {
  SilentProgress progress;
  return evaluate_task(model, data, rules, progress);
}

double value_of(const TaskEvaluation& evaluation) {
  double sum = 0;
  for (const SampleScore& score : evaluation.scores) sum += score.metrics.front().value;
  return sum / static_cast<double>(evaluation.scores.size());
}

TaskData mmlu() { return load_task(find_task("mmlu", {}), {.paths = {kData}}); }

// Knows the right answers by the texts of the samples.
ScriptedModel truthful_model(const TaskData& data) {
  ScriptedModel model;
  model.likelihood = [&data](const std::string& context, const std::string& continuation) {
    for (const TaskSample& sample : data.samples) {
      for (const std::int64_t gold : sample.gold) {
        const auto right = static_cast<std::size_t>(gold);
        if (sample.context(right) + sample.continuations[right] == context + continuation)
          return 0.0;
      }
    }
    return -5.0 * static_cast<double>(continuation.size());
  };
  model.answer = [&data](const std::string& prompt) {
    for (const TaskSample& sample : data.samples) {
      if (sample.contexts[0] == prompt) return sample.answer;
    }
    return std::string();
  };
  return model;
}

TEST(Evaluation, OfAModelThatKnowsAllIsOne) {
  for (const char* name : {"mmlu", "boolq", "hellaswag", "piqa", "winogrande", "arc_easy", "ceval",
                           "cmmlu", "agieval", "openbookqa", "gsm8k"}) {
    SCOPED_TRACE(name);
    const TaskData data = load_task(find_task(name, {}), {.paths = {kData}});
    ScriptedModel model = truthful_model(data);
    EXPECT_EQ(value_of(evaluate(model, data)), 1.0);
  }
}

TEST(Evaluation, OfAModelThatAlwaysSaysAIsTheShareOfA) {
  const TaskData data = mmlu();
  ScriptedModel model;
  model.likelihood = [](const std::string&, const std::string& continuation) {
    return continuation == " A" ? -1.0 : -2.0;
  };
  EXPECT_EQ(value_of(evaluate(model, data)), 1.0 / 5);  // A B C, B C
}

TEST(Evaluation, GivesTheSameForEveryBatchSize) {
  const TaskData data = load_task(find_task("hellaswag", {}), {.paths = {kData}});
  ScriptedModel model;
  const TaskEvaluation one = evaluate(model, data, {.batch_size = 1});
  const TaskEvaluation many = evaluate(model, data, {.batch_size = 64});
  EXPECT_EQ(one.responses, many.responses);
  EXPECT_EQ(model.scored, 2 * (12 + 1)) << "and a text that tells models apart";
}

TEST(Evaluation, ContinuesWhereItWasKilled) {
  const TempFolder folder;
  const TaskData data = mmlu();
  const EvaluationRules rules{.batch_size = 1, .journal = folder / "mmlu.journal"};
  ScriptedModel model = truthful_model(data);
  model.fails_after = 8;
  EXPECT_THROW(evaluate(model, data, rules), std::runtime_error);
  model.fails_after = 1000;
  model.scored = 0;
  const TaskEvaluation rest = evaluate(model, data, rules);
  EXPECT_EQ(rest.restored, 8);
  EXPECT_EQ(model.scored, 12 + 1);
  EXPECT_EQ(rest.responses, evaluate(model, data).responses);
  EXPECT_EQ(value_of(rest), 1.0);
  forget_journal(rules);
  EXPECT_FALSE(std::filesystem::exists(folder / "mmlu.journal"));
}

TEST(Evaluation, CountsPromptsThatWereCutAndEmptyAnswers) {
  const TaskData data = mmlu();
  ScriptedModel model;
  model.longest = 60;
  EXPECT_EQ(evaluate(model, data).cut_prompts, 20);
  const TaskData words = load_task(find_task("gsm8k", {}), {.paths = {kData}, .num_shots = 0});
  ScriptedModel silent;
  const TaskEvaluation evaluation = evaluate(silent, words, {.requests = {.max_new_tokens = 16}});
  EXPECT_EQ(evaluation.empty_answers, 2);
  EXPECT_EQ(evaluation.cut_prompts, 0);
}

// "Yes" wins a tie, as in MindSpeed-LLM.
TEST(Evaluation, OfBoolqByMindSpeedComparesTheNextToken) {
  const TaskData data =
      load_task(find_task("boolq", {.protocol = Protocol::kMindSpeed}), {.paths = {kData}});
  ScriptedModel model;
  model.likelihood = [](const std::string&, const std::string&) { return -1.0; };
  const TaskEvaluation evaluation = evaluate(model, data);
  EXPECT_EQ(evaluation.scores[0].answer, "Yes");
  EXPECT_EQ(value_of(evaluation), 2.0 / 3);
}

}  // namespace
}  // namespace piton
