// What is cut out of a text. Wanted: AddedToken of `tokenizers` 0.23.3.
#include "text/steps/added_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace piton {
namespace {

// The parts of the text; those that are tokens in brackets.
std::vector<std::string> parts_of(const AddedToken& token, std::string_view text) {
  AddedTokenMatcher matcher;
  matcher.add(token, token.content);
  std::vector<AddedTokenMatcher::Part> parts;
  matcher.split(text, /*parse_special=*/true, parts);
  std::vector<std::string> texts;
  for (const auto& part : parts) {
    const std::string one(text.substr(part.begin, part.end - part.begin));
    texts.push_back(part.id < 0 ? one : "[" + one + "]");
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(AddedTokens, ThatAreSingleWordsHaveNoWordOnEitherSide) {
  const AddedToken token{.id = 1, .content = "me", .single_word = true};
  EXPECT_EQ(parts_of(token, "me"), Texts{"[me]"});
  EXPECT_EQ(parts_of(token, "to me, me."), (Texts{"to ", "[me]", ", ", "[me]", "."}));
  EXPECT_EQ(parts_of(token, "some"), Texts{"some"});
  EXPECT_EQ(parts_of(token, "met"), Texts{"met"});
  EXPECT_EQ(parts_of(token, "\u00E9me me\u00E9 me"), (Texts{"\u00E9me me\u00E9 ", "[me]"}));
  EXPECT_EQ(parts_of({.id = 1, .content = "me"}, "some"), (Texts{"so", "[me]"}));
}

TEST(AddedTokens, TakeTheSpacesThatTheyAreToTake) {
  EXPECT_EQ(parts_of({.id = 1, .content = "x", .lstrip = true}, "a  x  b"),
            (Texts{"a", "[  x]", "  b"}));
  EXPECT_EQ(parts_of({.id = 1, .content = "x", .lstrip = true}, "x a  x x"),
            (Texts{"[x]", " a", "[  x]", "[ x]"}));
  EXPECT_EQ(parts_of({.id = 1, .content = "x", .rstrip = true}, "a  x  b"),
            (Texts{"a  ", "[x  ]", "b"}));
}

}  // namespace
}  // namespace piton
