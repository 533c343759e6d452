#include "serve/chat/tool_calls.h"

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

// Of all tools: "text" and "one_of" are texts, the type of others is open or not.
const auto kParameters = read_json<nlohmann::ordered_json>(R"({"type": "object", "properties": {
    "text": {"type": "string"}, "one_of": {"enum": ["1", "2"]}, "a": {"type": "integer"}}})");

// What comes out must not depend on the parts.
Read read_parts(const std::string& answer, std::size_t size,
                const std::vector<std::string>& names = {"f", "look_up"}) {
  std::vector<CallableTool> tools;
  for (const std::string& name : names) tools.push_back({name, kParameters});
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

TEST(ToolCallText, FindsFormsWithTags) {
  const FunctionCall call{"f", R"({"text":"12","one_of":"2","a":1,"b":[1,{"c":"é"}],"d":"x y"})"};
  const Read keys = read_whole(
      "Wait.\n<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>12</arg_value>\n"
      "<arg_key>one_of</arg_key>\n<arg_value>2</arg_value>\n<arg_key>a</arg_key>\n"
      "<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>[1, {\"c\": \"é\"}]</arg_value>"
      "<arg_key>d</arg_key><arg_value>x y</arg_value>\n</tool_call>");
  EXPECT_EQ(keys.text, "Wait.\n");
  EXPECT_THAT(keys.calls, ElementsAre(call));
  const Read tags = read_whole(
      "<tool_call>\n<function=f>\n<parameter=text>\n12\n</parameter>\n<parameter=one_of>\n2\n"
      "</parameter>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n[1, {\"c\": \"é\"}]\n"
      "</parameter>\n<parameter=d>\nx y\n</parameter>\n</function>\n</tool_call>");
  EXPECT_EQ(tags.text, "");
  EXPECT_THAT(tags.calls, ElementsAre(call));
  const Read lines = read_whole(
      "<tool_call><function=f><parameter=text>\nif x:\n    y\n\n</parameter><parameter=b>\nTrue\n"
      "</parameter></function></tool_call>");
  EXPECT_THAT(lines.calls, ElementsAre(FunctionCall{"f", R"({"text":"if x:\n    y\n","b":true})"}));
  const Read none = read_whole("<tool_call>look_up</tool_call>");
  EXPECT_THAT(none.calls, ElementsAre(FunctionCall{"look_up", "{}"}));
}

TEST(ToolCallText, FindsTheFormsOfDeepSeek) {
  const FunctionCall other{"look_up", "{\"of\":\"```\"}"};
  const std::string v3 =
      "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
      "{\"a\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>look_up\n"
      "```json\n{\"of\": \"```\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  EXPECT_EQ(read_whole(v3).text, "Let me see.");
  EXPECT_THAT(read_whole(v3).calls, ElementsAre(kCall, other));
  const std::string newer =
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
      "<｜tool▁calls▁end｜>";
  EXPECT_EQ(read_whole(newer).text, "");
  EXPECT_THAT(read_whole(newer).calls, ElementsAre(kCall));
}

TEST(ToolCallText, LeavesMalformedTagsInTheText) {
  for (const char* answer :
       {"<tool_call>g\n<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
        "<tool_call>f<arg_key>a</arg_key></tool_call>",
        "<tool_call>f<arg_key>a</arg_key>x<arg_value>1</arg_value></tool_call>",
        "<tool_call><function=f><parameter=a>1</function></tool_call>",
        "<tool_call><function=f>a<parameter=a>1</parameter></function></tool_call>",
        "<｜tool▁calls▁begin｜>f{\"a\": 1}<｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": <｜tool▁call▁end｜>"}) {
    const Read read = read_whole(answer);
    EXPECT_EQ(read.text, answer);
    EXPECT_THAT(read.calls, IsEmpty()) << answer;
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
  ToolCallText reader({{"f", nullptr}});
  EXPECT_EQ(reader.push("So "), "So ");
  EXPECT_EQ(reader.push("it is <"), "it is ");
  EXPECT_EQ(reader.push("b> and"), "<b> and");
  EXPECT_EQ(reader.push("<tool_call>{"), "");
  EXPECT_EQ(reader.push("x"), "");
  EXPECT_EQ(reader.finish(), "<tool_call>{x");
}

}  // namespace
}  // namespace piton
