#include "rollouts/final_answer.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

TEST(FinalAnswer, IsBoxedElseMarkedElseTheLastNumber) {
  EXPECT_EQ(final_answer("so \\boxed{1} or \\boxed{\\frac{1}{2}}, not 7"), "\\frac{1}{2}");
  EXPECT_EQ(final_answer("\\boxed{3} then \\boxed{4"), "3");
  EXPECT_EQ(final_answer("5 and 6\n#### 18 \nmore 7"), "18");
  EXPECT_EQ(final_answer("#### 1\n#### -2"), "-2");
  EXPECT_EQ(final_answer("first 3, then 1,234.50."), "1,234.50");
  EXPECT_EQ(final_answer("it is -4"), "-4");
  EXPECT_EQ(final_answer("9-4"), "4");
  EXPECT_EQ(final_answer("(9) -4"), "-4");
  EXPECT_EQ(final_answer("1,2"), "2");
  EXPECT_EQ(final_answer("1,2345"), "2345");
  EXPECT_EQ(final_answer("none"), std::nullopt);
  EXPECT_EQ(final_answer(""), std::nullopt);
}

TEST(FinalAnswer, AgreesByValueAndByNotation) {
  EXPECT_TRUE(answers_agree("The answer is 1,234.", "1234"));
  EXPECT_TRUE(answers_agree("#### $12.50", "12.5"));
  EXPECT_TRUE(answers_agree("x = 7", "She has 3 + 4 = 7 eggs.\n#### 7"));
  EXPECT_TRUE(answers_agree("\\boxed{\\frac12}", "\\boxed{\\frac{1}{2}}"));
  EXPECT_TRUE(answers_agree("\\boxed{\\dfrac{1}{2}}", "\\frac{1}{2}"));
  EXPECT_TRUE(answers_agree("#### north", "north"));
  EXPECT_FALSE(answers_agree("The answer is 12", "2"));
  EXPECT_FALSE(answers_agree("no number", "2"));
  EXPECT_FALSE(answers_agree("\\boxed{}", ""));
  EXPECT_FALSE(answers_agree("3", ""));
  EXPECT_FALSE(answers_agree("7", "north"));
}

}  // namespace
}  // namespace piton
