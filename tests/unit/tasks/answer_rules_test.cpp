#include "tasks/answer_rules.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace piton {
namespace {

TEST(LetterAnswer, IsTheLastLetterWithAFullStopInTheFirstLineThatHasOne) {
  EXPECT_EQ(letter_answer("B. two"), "B");
  EXPECT_EQ(letter_answer(" A. one or C. three\nD. four"), "C");
  EXPECT_EQ(letter_answer("well\nD. four"), "D");
  EXPECT_EQ(letter_answer("A.D."), "D");
  EXPECT_EQ(letter_answer("|."), "|");
}

TEST(LetterAnswer, IsElseTheFirstCharacter) {
  EXPECT_EQ(letter_answer(" B"), "B");
  EXPECT_EQ(letter_answer("E. five"), "E");
  EXPECT_EQ(letter_answer("答"), "答");
  EXPECT_EQ(letter_answer(""), "");
}

TEST(NumberAfterPhrase, IsReadAsMindSpeedReadsIt) {
  EXPECT_EQ(number_after_phrase("So 3 + 4 = 7. The answer is 7."), "7");
  EXPECT_EQ(number_after_phrase("The answer is $1,500."), "1500");
  EXPECT_EQ(number_after_phrase("The answer is 3.5"), "3");  // a full stop ends a number
  EXPECT_EQ(number_after_phrase("It is 7.\n\nQ: x The answer is 8."), "[invalid]");
  EXPECT_EQ(number_after_phrase("The answer is 5. The answer is 6."), "5");
}

TEST(BareFirstLine, HasNoDollarsAndBrackets) {
  EXPECT_EQ(bare_first_line(" (A)\nbecause"), "A");
  EXPECT_EQ(bare_first_line("$12$"), "12");
  EXPECT_EQ(first_line("\n ] ) } \nno"), "] ) }");
  EXPECT_EQ(bbh_answer("(B)"), "b");
  EXPECT_EQ(bbh_answer(" True "), "true");
  EXPECT_EQ(bbh_answer("((a)"), "((a)");
}

TEST(PlainNumber, IgnoresWhatLmEvaluationHarnessIgnores) {
  EXPECT_EQ(plain_number("2 + 3 = 5.\n#### 1,500"), "1500");
  EXPECT_EQ(plain_number("$12."), "12");
  EXPECT_EQ(plain_number("1.5"), "1.5");
}

TEST(FilteredAnswer, TakesTheFirstOrTheLastMatch) {
  const AnswerFilter strict{.pattern = "#### \\K-?[0-9.,]+"};
  const AnswerFilter flexible{.pattern = "-?[$0-9.,]{2,}|-?[0-9]+", .last = true};
  const std::string text = "It is $3.50, or 7.\n#### 42\n#### 43 ";
  EXPECT_EQ(filtered_answer(strict, text), "42");
  EXPECT_EQ(filtered_answer(flexible, text), "43");
  EXPECT_EQ(filtered_answer(strict, "42"), "[invalid]");
  EXPECT_EQ(filtered_answer({}, " as it is "), " as it is ");
  const AnswerFilter phrase{.pattern = "(?<=the answer is )(.*)(?=.)"};
  EXPECT_EQ(filtered_answer(phrase, "So the answer is (B)."), "(B)");
}

TEST(FilteredAnswer, RefusesAPatternThatIsNone) {
  EXPECT_THROW(filtered_answer({.pattern = "(["}, "a"), Error);
}

}  // namespace
}  // namespace piton
