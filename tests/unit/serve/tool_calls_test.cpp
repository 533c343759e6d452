#include "serve/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace piton {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Read {
  std::string text;
  std::vector<FunctionCall> calls;
};

// What comes out must not depend on the parts.
Read read_parts(const std::string& answer, std::size_t size,
                const std::vector<std::string>& tools = {"f", "look_up"}) {
  ToolCallText reader(tools);
  Read read;
  for (std::size_t at = 0; at < answer.size(); at += size)
    read.text += reader.push(answer.substr(at, size));
  read.text += reader.finish();
  read.calls = reader.calls();
  return read;
}

Read read_whole(const std::string& answer) {
  const Read whole = read_parts(answer, answer.size() + 1);
  for (const std::size_t size : {1U, 2U, 7U}) {
    const Read parts = read_parts(answer, size);
    EXPECT_EQ(parts.text, whole.text) << answer;
    EXPECT_EQ(parts.calls, whole.calls) << answer;
  }
  return whole;
}

const FunctionCall kCall{"f", "{\"a\":1}"};

TEST(ToolCallText, FindsTheFormsOfModels) {
  for (const char* answer :
       {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\":1}\"}</tool_call>\n",
        "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
        "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
        "{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
        "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": 1}}"}) {
    const Read read = read_whole(answer);
    EXPECT_EQ(read.text, "") << answer;
    EXPECT_THAT(read.calls, ElementsAre(kCall)) << answer;
  }
}

TEST(ToolCallText, FindsSeveralCalls) {
  const FunctionCall other{"look_up", "{\"of\":\"x; {y}\"}"};
  const std::string one = "{\"name\": \"f\", \"arguments\": {\"a\": 1}}";
  const std::string two = "{\"name\": \"look_up\", \"arguments\": {\"of\": \"x; {y}\"}}";
  for (const std::string& answer :
       {"<tool_call>" + one + "</tool_call>\n<tool_call>\n" + two + "</tool_call>",
        "[TOOL_CALLS][" + one + ", " + two + "]", one + "; " + two, two + ";" + one}) {
    const Read read = read_whole(answer);
    EXPECT_EQ(read.text, "") << answer;
    EXPECT_THAT(read.calls, testing::UnorderedElementsAre(kCall, other)) << answer;
  }
}

TEST(ToolCallText, KeepsTheTextBeforeACall) {
  const Read read = read_whole(
      "I look: <b>\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>");
  EXPECT_EQ(read.text, "I look: <b>\n");
  EXPECT_THAT(read.calls, ElementsAre(kCall));
}

TEST(ToolCallText, LeavesWhatIsNoCall) {
  for (const char* answer :
       {"plain", "", "{\"name\": \"g\", \"parameters\": {}}", "{\"a\": 1}", "[1, 2]", "[",
        "{ \"name", "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
        "<tool_call>f()</tool_call>", "<tool_call>", "a <tool_cal",
        "[{\"name\": \"f\", \"arguments\": {}}, 3]", "{\"name\": \"f\", \"arguments\": [1]}",
        "see {\"name\": \"f\", \"parameters\": {}}"}) {
    const Read read = read_whole(answer);
    EXPECT_EQ(read.text, answer);
    EXPECT_THAT(read.calls, IsEmpty()) << answer;
  }
  const std::string call = "{\"name\": \"f\", \"arguments\": {}}";
  EXPECT_EQ(read_parts(call, 3, {}).text, call) << "no tools";
  const std::string deep = "{\"name\": \"f\", \"arguments\": " + std::string(100'000, '[');
  EXPECT_EQ(read_parts(deep, 1000).text, deep);
}

TEST(ToolCallText, WithholdsOnlyWhatMayBeACall) {
  ToolCallText reader({"f"});
  EXPECT_EQ(reader.push("So "), "So ");
  EXPECT_EQ(reader.push("it is <"), "it is ");
  EXPECT_EQ(reader.push("b> and"), "<b> and");
  EXPECT_EQ(reader.push("<tool_call>{"), "");
  EXPECT_EQ(reader.push("x"), "");
  EXPECT_EQ(reader.finish(), "<tool_call>{x");
}

}  // namespace
}  // namespace piton
