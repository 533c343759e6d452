#include "data/instruct/tool_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "support/errors.h"

namespace piton {
namespace {

using ::testing::HasSubstr;

TEST(PythonJson, IsThatOfJsonDumps) {
  const auto written = [](const char* text) {
    return python_json(read_json<nlohmann::ordered_json>(text));
  };
  EXPECT_EQ(written(R"({"b":1,"a":[true,null,-2.5,"é\n\"",{}],"c":[]})"),
            R"({"b": 1, "a": [true, null, -2.5, "é\n\"", {}], "c": []})");
}

TEST(ToolCalls, AreOneObjectOrAList) {
  const ToolCalls one = tool_calls(R"(<think>t</think>{"name": "f", "arguments": {"x": [1, 2]}})");
  EXPECT_EQ(one.thought, "<think>t</think>");
  ASSERT_EQ(one.calls.size(), 1U);
  EXPECT_EQ(one.calls[0].name, "f");
  EXPECT_EQ(one.calls[0].arguments, R"({"x": [1, 2]})");
  EXPECT_EQ(qwen_calls(one),
            "<think>t</think><tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, 2]}}\n"
            "</tool_call>");
  const ToolCalls two = tool_calls(R"([{"name": "f", "arguments": "{}"},
                                       {"name": "g", "arguments": {}}])");
  EXPECT_EQ(two.calls.size(), 2U);
  for (const char* wrong :
       {"f(x)", "[]", "3", R"({"name": "f"})", R"({"name": 1, "arguments": {}})",
        R"({"name": "f", "arguments": "x"})"}) {
    EXPECT_THROW(tool_calls(wrong), Error) << wrong;
  }
}

TEST(ToolDescriptions, RefuseWhatIsNoListOfTools) {
  EXPECT_EQ(tool_descriptions(ToolFormat::kDefault, ""), "");
  EXPECT_EQ(tool_descriptions(ToolFormat::kQwen, "[]"), "");
  const auto fault = [](ToolFormat format, const char* tools) {
    return message_of(Fault::kData, [&] { tool_descriptions(format, tools); });
  };
  EXPECT_THAT(fault(ToolFormat::kDefault, "weather"), HasSubstr("are not JSON"));
  EXPECT_THAT(fault(ToolFormat::kDefault, "[3]"), HasSubstr("not a list of objects"));
  EXPECT_THAT(fault(ToolFormat::kDefault, "[{}]"), HasSubstr("a tool has no name"));
  EXPECT_THAT(fault(ToolFormat::kGlm4, R"([{"name": "f"}])"), HasSubstr("cannot write tools"));
}

}  // namespace
}  // namespace piton
