#include "text/chat/written_tools.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

std::optional<std::string_view> left_out(const std::string& source, const ChatInput& input) {
  return left_out_of_text(ChatTemplate(source, Json::object(), "test"), input);
}

ChatInput with_tools() {
  ChatInput input;
  input.messages = Json::array({{{"role", "user"}, {"content", "q"}}});
  input.tools = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  return input;
}

ChatInput with_calls() {
  ChatInput input = with_tools();
  const Json call = {{"type", "function"},
                     {"function", {{"name", "f"}, {"arguments", Json::object()}}}};
  input.messages.push_back(
      {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}});
  return input;
}

constexpr const char* kContents = "{% for m in messages %}{{ m.content }}{% endfor %}";
constexpr const char* kTools = "{% for t in tools %}{{ t.function.name }}{% endfor %}";
constexpr const char* kCalls =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}"
    "{% endfor %}";

TEST(LeftOutOfText, IsWhatTheTemplateDoesNotWrite) {
  EXPECT_EQ(left_out(kContents, with_tools()), "tools");
  EXPECT_EQ(left_out(kContents, with_calls()), "tool calls");
  EXPECT_EQ(left_out(kTools, with_tools()), std::nullopt);
  EXPECT_EQ(left_out(kTools, with_calls()), "tool calls");
  EXPECT_EQ(left_out(kCalls, with_calls()), "tools");
  EXPECT_EQ(left_out(std::string(kTools) + kCalls, with_calls()), std::nullopt);
}

TEST(LeftOutOfText, IsNothingWhereThereAreNoTools) {
  ChatInput input = with_tools();
  input.tools = nullptr;
  EXPECT_EQ(left_out(kContents, input), std::nullopt);
}

// A template that refuses an unknown name reads it.
TEST(LeftOutOfText, IsNothingOfATemplateThatRefusesOtherNames) {
  const std::string source =
      "{% for t in tools %}{% if t.function.name != 'f' %}{{ raise_exception('no') }}{% endif %}"
      "{% endfor %}";
  EXPECT_EQ(left_out(source, with_tools()), std::nullopt);
}

TEST(LeftOutOfText, ThrowsWhereTheTemplateRefusesTheInput) {
  EXPECT_THROW(left_out("{{ raise_exception('no') }}", with_tools()), Error);
}

}  // namespace
}  // namespace piton
