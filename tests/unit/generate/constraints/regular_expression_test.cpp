#include "generate/constraints/regular_expression.h"

#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "support/errors.h"
#include "unit/generate/constraints/grammar_texts.h"

namespace piton {
namespace {

test::GrammarTexts regex_texts(std::string_view pattern, RegexOptions options = {}) {
  GrammarBuilder grammar;
  const auto whole = regular_expression(grammar, pattern, options, "regex");
  return test::GrammarTexts(grammar.finish(whole, "regex"));
}

std::string regex_refusal(std::string_view pattern) {
  return message_of(Fault::kUsage, [&] { regex_texts(pattern); });
}

TEST(RegularExpression, AgreesWithTheStandardLibrary) {
  const char* patterns[] = {
      "a",           "a*",     "(ab|a)*b",    "[a-c]{2,3}",     "a?b+",       "[^a]b",
      "(a|b)(a|b)c", "a{0}b",  "(?:ab){1,2}", "a{2,}",          "\\d|\\w{2}", "b|",
      "[ab]*?c",     "(a*)*b", "a.c",         "\\x61[\\x62-c]", "(|a)b"};
  const std::string letters = "abc-";
  for (const char* pattern : patterns) {
    test::GrammarTexts texts = regex_texts(pattern);
    const std::regex oracle(pattern);
    std::string text;
    for (int number = 0; number < 341; ++number) {  // all texts of at most four letters
      text.clear();
      for (int rest = number; rest > 0; rest = (rest - 1) / 4) text += letters[(rest - 1) % 4];
      EXPECT_EQ(texts.has(text), std::regex_match(text, oracle)) << pattern << " with " << text;
    }
  }
}

TEST(RegularExpression, ReadsCharactersNotBytes) {
  EXPECT_TRUE(regex_texts("[à-ü]").has("é"));
  EXPECT_FALSE(regex_texts("[à-ü]").has("a"));
  EXPECT_TRUE(regex_texts(".").has("𝄞"));
  EXPECT_FALSE(regex_texts(".").has("\xE9"));
  EXPECT_FALSE(regex_texts(".").has("\n"));
  EXPECT_TRUE(regex_texts("\\u00e9\\u{1D11E}").has("é𝄞"));
  EXPECT_TRUE(regex_texts("\\uD834\\uDD1E").has("𝄞"));
  for (const char32_t c : {0x7FU, 0x80U, 0x7FFU, 0x800U, 0xFFFFU, 0x10000U, 0x10FFFFU}) {
    GrammarBuilder grammar;
    const auto part = one_of(grammar, {{c, c}}, TextForm::kPlain);
    test::GrammarTexts texts(grammar.finish(part, "one"));
    std::mt19937_64 random(c);
    const std::string text = texts.draw(random, 1);
    EXPECT_TRUE(regex_texts("[\\s\\S]").has(text)) << static_cast<unsigned>(c);
  }
}

TEST(RegularExpression, WithinJsonEscapesWhatJsonEscapes) {
  test::GrammarTexts texts = regex_texts("[\\s\\S]*", {.form = TextForm::kJsonString});
  EXPECT_TRUE(texts.has(R"(a\"b\\c\n\u0001é)"));
  EXPECT_FALSE(texts.has("\""));
  EXPECT_FALSE(texts.has("\n"));
  EXPECT_FALSE(texts.has("\\"));
}

TEST(RegularExpression, IsFoundAnywhereInASchema) {
  EXPECT_TRUE(regex_texts("b", {.anywhere = true}).has("abc"));
  EXPECT_FALSE(regex_texts("^b", {.anywhere = true}).has("abc"));
  EXPECT_FALSE(regex_texts("b$", {.anywhere = true}).has("abc"));
  EXPECT_TRUE(regex_texts("^a|c$", {.anywhere = true}).has("abc"));
}

TEST(RegularExpression, ThatIsMalformedIsRefusedWithItsPlace) {
  EXPECT_EQ(regex_refusal("a(b"), "regex: regular expression \"a(b\", byte 4: a group has no )");
  EXPECT_EQ(regex_refusal("a)"), "regex: regular expression \"a)\", byte 2: found ) without (");
  for (const char* pattern :
       {"[a", "a**", "*a", "a{2,1}", "a{", "\\", "(?=a)", "(?<!a)", "\\1", "\\bword", "a^b",
        "(a$)b", "\\u12", "\\ud800", "[b-a]", "\xFF", "a{100001}", "\\p{L}", "[]"}) {
    EXPECT_NE(regex_refusal(pattern), "") << pattern;
  }
  EXPECT_NE(regex_refusal("((((a{1000}){1000}){1000}){1000}"), "");
  EXPECT_NE(regex_refusal("(((a{1000}){1000}){1000})"), "");
  EXPECT_NE(regex_refusal(std::string(5000, '(') + std::string(5000, ')')), "");
}

}  // namespace
}  // namespace piton
