#include "serve/chat/reasoning_text.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

ReasoningText::Parts read_parts(const std::string& text, ReasoningPlace place, std::size_t size) {
  ReasoningText reader(place);
  ReasoningText::Parts all;
  const auto add = [&](const ReasoningText::Parts& parts) {
    all.reasoning += parts.reasoning;
    all.answer += parts.answer;
  };
  for (std::size_t at = 0; at < text.size(); at += size) add(reader.push(text.substr(at, size)));
  add(reader.finish());
  return all;
}

// What comes out must not depend on the parts.
void expect(const std::string& text, ReasoningPlace place, const std::string& reasoning,
            const std::string& answer) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{3}, text.size() + 1}) {
    const ReasoningText::Parts parts = read_parts(text, place, size);
    EXPECT_EQ(parts.reasoning, reasoning) << text << " in parts of " << size;
    EXPECT_EQ(parts.answer, answer) << text << " in parts of " << size;
  }
}

TEST(ReasoningText, IsBeforeTheAnswer) {
  expect("\n<think>\na < b\n\nso </ no\n</think>\n\n yes\n", ReasoningPlace::kMayBegin,
         "a < b\n\nso </ no", "yes\n");
  expect("\nx</think>y</think>", ReasoningPlace::kInside, "x", "y</think>");
  expect("<think>\n\n</think>\n\ny", ReasoningPlace::kMayBegin, "", "y");
  expect("<think><think>x</think>", ReasoningPlace::kMayBegin, "<think>x", "");
}

TEST(ReasoningText, IsNotThere) {
  expect("  y <think>x</think>", ReasoningPlace::kMayBegin, "", "  y <think>x</think>");
  expect(" <thin", ReasoningPlace::kMayBegin, "", " <thin");
  expect("\n ", ReasoningPlace::kMayBegin, "", "\n ");
  expect("", ReasoningPlace::kInside, "", "");
  expect("\n<think>x</think>y", ReasoningPlace::kNone, "", "\n<think>x</think>y");
}

TEST(ReasoningText, MayBeCut) {
  expect("<think> x </thin", ReasoningPlace::kMayBegin, "x </thin", "");
  expect("x \n", ReasoningPlace::kInside, "x \n", "");
}

TEST(ReasoningText, FollowsFromThePrompt) {
  const std::string source = "{{ '<think>' }}";
  EXPECT_EQ(reasoning_after("q<think>\n", source), ReasoningPlace::kInside);
  EXPECT_EQ(reasoning_after("q<think>\n\n</think>\n\n", source), ReasoningPlace::kMayBegin);
  EXPECT_EQ(reasoning_after("", "content.split('</think>')"), ReasoningPlace::kMayBegin);
  EXPECT_EQ(reasoning_after("q<think>", "{{ q }}"), ReasoningPlace::kNone);
}

}  // namespace
}  // namespace piton
