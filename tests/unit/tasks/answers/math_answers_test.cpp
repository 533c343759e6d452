// Answers are equal where they are for lm-evaluation-harness:
// tests/golden/evaluation/math_answers.jsonl, made by tools/oracle/evaluation_math.py.
#include "tasks/answers/math_answers.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/files/files.h"
#include "base/json.h"

namespace piton {
namespace {

TEST(MathAnswer, IsEqualWhereLmEvaluationHarnessSaysSo) {
  std::istringstream lines(read_text_file(std::string(PITON_SOURCE_DIR) +
                                          "/tests/golden/evaluation/math_answers.jsonl"));
  std::map<int, std::string> forms;
  std::map<std::string, int> places;
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto golden = read_json<nlohmann::json>(line);
    SCOPED_TRACE(line);
    const int place = golden[1];
    const std::string form = math_answer(golden[0].get<std::string>());
    EXPECT_EQ(forms.try_emplace(place, form).first->second, form);
    EXPECT_EQ(places.try_emplace(form, place).first->second, place);
  }
  EXPECT_GT(count, 300U);
}

}  // namespace
}  // namespace piton
