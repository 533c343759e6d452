#include "evaluate/answer_text.h"

#include <gtest/gtest.h>

#include <vector>

namespace piton {
namespace {

// The results of postprocess_generated_text() of lm-evaluation-harness 0.4.13 for these arguments.
TEST(AnswerAfter, IsThatOfLmEval) {
  const std::vector<std::string> stop = {"\n\n", "Q:"};
  EXPECT_EQ(answer_after("Q: hm\n\n</think>\n\n 42\n\nQ: x", "</think>", stop), "42");
  EXPECT_EQ(answer_after("a</think>b</think> c Q: d", "</think>", stop), "c ");
  EXPECT_EQ(answer_after(" no end\n\nx", "</think>", stop), "no end");
  EXPECT_EQ(answer_after("x</think>", "</think>", stop), "");
  EXPECT_EQ(answer_after("x</think>\u00a0\u3000y \n", "</think>", {}), "y \n");
  const std::vector<std::string> with_empty = {"", "y"};
  EXPECT_EQ(answer_after("x|zy", "|", with_empty), "z");
}

}  // namespace
}  // namespace piton
