#include "text/chat/conversations.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/errors.h"

namespace piton {
namespace {

std::vector<std::string> messages_of(std::string_view text) {
  std::vector<std::string> messages;
  for (const ChatInput& input : read_conversations(text, "f")) {
    messages.push_back(input.messages.dump());
  }
  return messages;
}

TEST(Conversations, AreReadFromEveryForm) {
  const std::vector<std::string> one = {R"([{"role":"user","content":"hi"}])"};
  const std::string message = R"({"role": "user", "content": "hi"})";
  EXPECT_EQ(messages_of("[" + message + "]"), one);
  EXPECT_EQ(messages_of("{\"messages\":\n[" + message + "]}"), one);
  EXPECT_EQ(messages_of("[[" + message + "]]"), one);
  EXPECT_EQ(messages_of("[{\"messages\": [" + message + "]}]"), one);
  const std::vector<std::string> two = {one[0], one[0]};
  EXPECT_EQ(messages_of("[" + message + "]\n\n{\"messages\": [" + message + "]}\r\n"), two);
  EXPECT_EQ(messages_of(R"({"conversations": [{"from": "human", "value": "hi"}]})"), one);
}

TEST(Conversations, OfShareGptHaveTheRolesOfTemplates) {
  EXPECT_EQ(messages_of(R"({"system": "s", "conversations": [
      {"from": "human", "value": "h"}, {"from": "gpt", "value": "g"},
      {"from": "observation", "value": "o"}]})")[0],
            R"([{"role":"system","content":"s"},{"role":"user","content":"h"},)"
            R"({"role":"assistant","content":"g"},{"role":"tool","content":"o"}])");
}

// As `piton preprocess` gives them to the template of the model.
TEST(Conversations, OfShareGptHaveCallsOfTools) {
  const auto inputs = read_conversations(R"json(
      {"tools": "[{\"name\": \"f\"}]", "conversations": [{"from": "human", "value": "h"},
      {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
      {"from": "observation", "value": "o"},
      {"from": "function_call", "value": "[{\"name\": \"f\", \"arguments\": \"{}\"}]"},
      {"from": "function_call", "value": "f(1)"}]})json",
                                         "f");
  const auto call = [](const std::string& arguments) {
    return R"({"role":"assistant","content":"","tool_calls":[{"type":"function","function":{)"
           R"("name":"f","arguments":)" +
           arguments + "}}]}";
  };
  const std::string wanted = R"([{"role":"user","content":"h"},)" + call(R"({"x":1})") +
                             R"(,{"role":"tool","content":"o"},)" + call("{}") +
                             R"json(,{"role":"assistant","content":"f(1)"}])json";
  EXPECT_EQ(inputs[0].messages.dump(), wanted);
  EXPECT_EQ(inputs[0].tools.dump(), R"([{"type":"function","function":{"name":"f"}}])");
}

TEST(Conversations, AnswersOfWeight0AreNotLearned) {
  const auto untaught = [](const std::string& weights) {
    return read_conversations(
               R"([{"role": "user", "content": "q", "weight": 0},
                   {"role": "assistant", "content": "a")" +
                   weights + R"(}, {"role": "user", "content": "r"},
                   {"role": "assistant", "content": "b", "weight": 0.0}])",
               "f")[0]
        .untaught;
  };
  using Indices = std::set<std::size_t>;
  EXPECT_EQ(untaught(""), (Indices{3}));
  EXPECT_EQ(untaught(R"(, "weight": 0)"), (Indices{1, 3}));
  for (const char* weight : {"1", "1.0", "true", "null"})
    EXPECT_EQ(untaught(std::string(R"(, "weight": )") + weight), (Indices{3})) << weight;
  EXPECT_EQ(untaught(R"(, "weight": false)"), (Indices{1, 3}));
  EXPECT_EQ(message_of(Fault::kData, [&] { untaught(R"(, "weight": 0.5)"); }),
            "f: conversation 1: a message of the assistant has the \"weight\" 0.5, wanted 1, or 0 "
            "for what is not learned");
  EXPECT_EQ(read_conversations(R"({"conversations": [{"from": "human", "value": "h"},
                                  {"from": "gpt", "value": "g", "weight": 0}]})",
                               "f")[0]
                .untaught,
            (Indices{1}));
}

TEST(Conversations, HaveToolsDocumentsAndVariables) {
  const auto inputs = read_conversations(
      R"({"messages": [], "tools": "[{\"a\": 1}]", "documents": [{}], "enable_thinking": false})",
      "f");
  EXPECT_EQ(inputs[0].tools.dump(), R"([{"a":1}])");
  EXPECT_EQ(inputs[0].documents.dump(), "[{}]");
  EXPECT_EQ(inputs[0].variables.dump(), R"({"enable_thinking":false})");
  // "system" is a message of ShareGPT's form, and any other name in the other one.
  const auto variables_of = [](const char* text) {
    return read_conversations(text, "f")[0].variables.dump();
  };
  EXPECT_EQ(variables_of(R"({"conversations": [], "system": "s", "a": 1})"), R"({"a":1})");
  EXPECT_EQ(variables_of(R"({"messages": [], "system": "s", "a": 1})"), R"({"system":"s","a":1})");
}

TEST(Conversations, ThatAreMalformedAreNamed) {
  const auto error = [](std::string_view text) {
    return message_of(Fault::kData, [&] { read_conversations(text, "f"); });
  };
  EXPECT_EQ(error("{}\nnot"),
            "f: conversation 1: got an object without messages, wanted a list of "
            "messages, or an object with \"messages\" or \"conversations\"");
  EXPECT_EQ(error("[]\n[\n"), "f: line 2: got no JSON, wanted one JSON value, or one per line");
  EXPECT_EQ(error(" \n"), "f: got no conversations, wanted JSON or JSONL");
  EXPECT_EQ(error(R"({"conversations": [{"from": "cat", "value": ""}]})"),
            "f: conversation 1: \"from\": got \"cat\", wanted human, gpt, system, function_call, "
            "observation or tool");
  EXPECT_EQ(error(R"({"conversations": [{"from": "human"}]})"),
            "f: conversation 1: wanted messages with the text \"value\"");
  EXPECT_EQ(error(R"({"messages": [], "tools": "x"})"),
            "f: conversation 1: \"tools\": got a text that is no JSON list");
}

}  // namespace
}  // namespace piton
