// The letters that MindSpeed-LLM's postprocess() finds: tests/golden/evaluation/mindspeed.jsonl,
// made by tools/oracle/evaluation_mindspeed.py.
#include "tasks/answers/choice_phrases.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/files/files.h"
#include "base/json.h"

namespace piton {
namespace {

TEST(ChoiceAfterPhrases, IsTheLetterThatMindSpeedFinds) {
  std::istringstream lines(
      read_text_file(PITON_SOURCE_DIR "/tests/golden/evaluation/mindspeed.jsonl"));
  std::size_t compared = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto golden = read_json<nlohmann::json>(line);
    if (!golden.contains("answers")) continue;
    for (const auto& answer : golden["answers"]) {
      EXPECT_EQ(choice_after_phrases(answer[0].get<std::string>()), answer[1].get<std::string>())
          << answer[0];
      ++compared;
    }
  }
  EXPECT_GT(compared, 700U);
}

TEST(ChoiceAfterPhrases, LooksAtNoRightAnswer) {
  // A rule of MindSpeed-LLM, without --origin-postprocess, would take B if B is right.
  EXPECT_EQ(choice_after_phrases("B or A. The answer is A"), "A");
  EXPECT_EQ(choice_after_phrases("\xFF the answer is C"), "C");
}

}  // namespace
}  // namespace piton
