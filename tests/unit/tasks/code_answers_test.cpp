#include "tasks/code_answers.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

const CodeQuestion kQuestion{.prompt = "import os\n\ndef twice(x):\n    \"\"\" Doubles. \"\"\"\n",
                             .test = "def check(f):\n    assert f(2) == 4\n",
                             .entry_point = "twice"};
constexpr const char* kTests = "\ndef check(f):\n    assert f(2) == 4\n\ncheck(twice)\n";

TEST(CompletedProgram, IsThePromptTheAnswerAndTheTests) {
  EXPECT_EQ(completed_program(kQuestion, "    return 2 * x"),
            kQuestion.prompt + "    return 2 * x" + kTests);
}

// Results of extract_answer_code() of AscendSpeed for the same texts.
TEST(ExtractedProgram, KeepsImportsFunctionsAndWhatIsIndented) {
  const std::string head =
      "from typing import List\nimport math\nimport os\ndef twice(x):\n    \"\"\" Doubles. "
      "\"\"\"\n";
  EXPECT_EQ(extracted_program(kQuestion, "   return 2 * x\n\nprint(twice(3))\n  # note"),
            head + "    return 2 * x\n  # note\n" + kTests);
  EXPECT_EQ(extracted_program(kQuestion,
                              "   return 1\ndef other():\n\treturn 2\nfrom os import path\nx = 1"),
            head + "    return 1\ndef other():\n\treturn 2\nfrom os import path\n" + kTests);
}

TEST(ExtractedProgram, EndsAfterAFunctionThatIsWrittenWithASpace) {
  CodeQuestion question = kQuestion;
  question.prompt = "def twice (x):\n";
  EXPECT_EQ(
      extracted_program(question, "   return 2 * x\nprint()\n    more"),
      std::string("from typing import List\nimport math\ndef twice (x):\n    return 2 * x\n") +
          kTests);
  question.prompt = "Python\ndef";
  EXPECT_EQ(extracted_program(question, "twice(x): pass"),
            std::string("from typing import List\nimport math\ndef twice(x): pass\n") + kTests);
}

}  // namespace
}  // namespace piton
