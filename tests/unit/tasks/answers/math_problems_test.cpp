// Forms of answers are those of lm-evaluation-harness: tests/golden/evaluation/math_forms.jsonl,
// made by tools/oracle/evaluation_tasks.py.
#include "tasks/answers/math_problems.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/files/files.h"
#include "base/json.h"

namespace piton {
namespace {

TEST(MathProblems, HaveTheFormsOfLmEvaluationHarness) {
  std::istringstream lines(
      read_text_file(std::string(PITON_SOURCE_DIR) + "/tests/golden/evaluation/math_forms.jsonl"));
  std::map<int, std::string> forms;
  std::map<std::string, int> places;
  for (std::string line; std::getline(lines, line);) {
    const auto golden = read_json<nlohmann::json>(line);
    SCOPED_TRACE(line);
    const std::string text = golden[0];
    EXPECT_EQ(minerva_form(text), golden[1].get<std::string>());
    EXPECT_EQ(minerva_answer("It is " + text + ". Final Answer: The final answer is " + text +
                             ". I hope"),
              golden[3].get<std::string>());
    const int place = golden[2];
    const std::string form = hendrycks_form(text);
    EXPECT_EQ(forms.try_emplace(place, form).first->second, form);
    EXPECT_EQ(places.try_emplace(form, place).first->second, place);
  }
  EXPECT_GT(places.size(), 300U);
}

TEST(MathProblems, HaveTheAnswerInTheLastBox) {
  EXPECT_EQ(boxed_answer("\\boxed{1} or \\boxed{\\frac{1}{2}}."), "\\frac{1}{2}");
  EXPECT_EQ(boxed_answer("$\\boxed 7$ of $\\boxed 8$"), "8");
  EXPECT_EQ(boxed_answer("\\boxed{1"), std::nullopt);
  EXPECT_EQ(boxed_answer("no box"), std::nullopt);
}

}  // namespace
}  // namespace piton
