// Canonical solutions of HumanEval pass, broken ones fail, in both protocols. Without python3 or
// user namespaces the tests are skipped.
#include "evaluate/code_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "support/sampled.h"
#include "support/scripted_model.h"
#include "tasks/task_records.h"
#include "tasks/task_table.h"

namespace piton {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::string kProblems =
    std::string(PITON_SOURCE_DIR) + "/tests/golden/evaluation/data/humaneval/test.jsonl";
const std::string kPublished =
    std::string(PITON_SOURCE_DIR) + "/../shared/data/bench/humaneval/HumanEval.jsonl.gz";

class CodeTests : public testing::Test {
 protected:
  void SetUp() override {
    try {
      sandbox_.emplace();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  // Answers the first `most` problems with the canonical solutions, changed by `change`.
  TaskEvaluation evaluate(Protocol protocol, const std::string& file,
                          const std::function<std::string(std::string)>& change,
                          std::optional<std::int64_t> most = {}) {
    const TaskData data = load_task(find_task("humaneval", {.protocol = protocol}),
                                    {.paths = {file}, .max_samples = most});
    const std::vector<nlohmann::json> records = read_task_records(file, {});
    test::ScriptedModel model;
    model.answer = [&](const std::string& prompt) {
      for (const auto& record : records) {
        if (prompt.ends_with(record["prompt"].get<std::string>()))
          return change(record["canonical_solution"].get<std::string>());
      }
      return std::string();
    };
    SilentProgress progress;
    TaskEvaluation evaluation =
        evaluate_task(model, data, {.requests = {.max_new_tokens = 16}}, progress);
    run_code_tests(evaluation, *sandbox_, progress);
    return evaluation;
  }

  std::string verdict(const std::string& program) {
    return code_verdict(*sandbox_, program, {.seconds = 20});
  }

  std::optional<PythonSandbox> sandbox_;
};

int passed(const TaskEvaluation& evaluation) {
  int count = 0;
  for (const SampleScore& score : evaluation.scores)
    count += score.metrics.at(0).value == 1.0 ? 1 : 0;
  return count;
}

std::string same(std::string text) { return text; }

TEST_F(CodeTests, OfSeveralAnswersAreAVerdictOfEach) {
  TaskData data = load_task(find_task("humaneval", {}), {.paths = {kProblems}, .max_samples = 1});
  data.task.pass_at = {1, 2};
  const std::string solution = read_task_records(kProblems, {})[0]["canonical_solution"];
  test::ScriptedModel model;
  model.drawn = [&](const std::string&, std::uint64_t draw) {
    return draw == AnswerSampling::draw(0, 1) ? solution : std::string("    return None");
  };
  EvaluationRules rules{.requests = {.max_new_tokens = 16, .answers = 3},
                        .sampling = {.answers = 3}};
  SilentProgress progress;
  TaskEvaluation evaluation = evaluate_task(model, data, rules, progress);
  run_code_tests(evaluation, *sandbox_, progress);
  const SampleScore& score = evaluation.scores[0];
  EXPECT_EQ(score.answer, "1 of 3 passed");
  EXPECT_EQ(score.metrics[1].metric, "pass@2");
  EXPECT_NEAR(score.metrics[0].value, 1.0 / 3, 1e-15);
  EXPECT_NEAR(score.metrics[1].value, 2.0 / 3, 1e-15);
  EXPECT_EQ(evaluation.responses[0].verdicts[1], kPassed);
}

TEST_F(CodeTests, PassForCanonicalSolutions) {
  const TaskEvaluation evaluation = evaluate(Protocol::kLmEval, kProblems, same);
  EXPECT_EQ(evaluation.scores.size(), 3U);
  EXPECT_EQ(passed(evaluation), 3);
  EXPECT_EQ(evaluation.scores[0].answer, "passed");
  EXPECT_EQ(evaluation.scores[0].metrics[0].metric, "pass@1");
  EXPECT_EQ(evaluation.scores[0].metrics[0].filter, "create_test");
  // MindSpeed-LLM puts a space before an answer.
  EXPECT_EQ(passed(evaluate(Protocol::kMindSpeed, kProblems,
                            [](const std::string& text) { return text.substr(1); })),
            3);
}

TEST_F(CodeTests, FailForBrokenOnes) {
  for (const Protocol protocol : {Protocol::kLmEval, Protocol::kMindSpeed}) {
    const TaskEvaluation wrong =
        evaluate(protocol, kProblems, [](const std::string&) { return "    return None\n"; });
    EXPECT_EQ(passed(wrong), 0);
  }
  const TaskEvaluation wrong = evaluate(Protocol::kLmEval, kProblems,
                                        [](const std::string&) { return "    return None\n"; });
  EXPECT_THAT(wrong.scores[0].answer, HasSubstr("AssertionError"));
  EXPECT_EQ(
      passed(evaluate(Protocol::kLmEval, kProblems, [](const std::string&) { return "    ("; })),
      0);
  EXPECT_EQ(passed(evaluate(Protocol::kLmEval, kProblems, [](const std::string&) { return ""; })),
            0);
}

TEST_F(CodeTests, NeedTheProgramToRunToItsEnd) {
  EXPECT_EQ(verdict("print('hello')"), "passed");
  EXPECT_EQ(verdict("import sys\nsys.stdout.close()\nsys.stdout = None"), "passed");
  EXPECT_EQ(verdict("import os\nos._exit(0)"), "exited before its end");
  EXPECT_EQ(verdict("import sys\nsys.exit(0)"), "exited before its end");
  EXPECT_EQ(verdict("raise ValueError('no')"), "exit code 1: ValueError: no");
  EXPECT_THAT(verdict("x ="), StartsWith("exit code 1: SyntaxError"));
  EXPECT_EQ(verdict("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
                    "import ctypes\nctypes.string_at(1)"),
            "killed by signal 11");
  EXPECT_EQ(code_verdict(*sandbox_, "while True: pass", {.seconds = 0.2}), "timed out");
}

// All 164 problems, or the first 20 by day, where the published file is.
TEST_F(CodeTests, PassForAllPublishedSolutions) {
  if (!std::filesystem::exists(kPublished)) GTEST_SKIP() << "no data at " << kPublished;
  const std::int64_t most = test::nightly() ? 164 : 20;
  for (const Protocol protocol : {Protocol::kLmEval, Protocol::kMindSpeed}) {
    const TaskEvaluation evaluation = evaluate(
        protocol, kPublished,
        [&](const std::string& text) {
          return protocol == Protocol::kLmEval ? text : text.substr(1);
        },
        most);
    EXPECT_EQ(std::ssize(evaluation.scores), most);
    for (std::size_t i = 0; i < evaluation.scores.size(); ++i) {
      EXPECT_TRUE(evaluation.scores[i].correct) << i << ": " << evaluation.scores[i].answer;
    }
  }
}

}  // namespace
}  // namespace piton
