#include "data/instruct/handlers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "support/errors.h"

namespace piton {
namespace {

using ::testing::HasSubstr;

Conversation read(const std::string& handler_name, const char* record,
                  const std::string& map_keys = "") {
  const Handler& handler = handler_named(handler_name);
  return read_conversation(handler, fields_of(handler, map_keys),
                           read_json<nlohmann::ordered_json>(record));
}

std::string fault_of(const std::string& handler_name, const char* record,
                     const std::string& map_keys = "") {
  return message_of(Fault::kData, [&] { read(handler_name, record, map_keys); });
}

std::string shown(const Conversation& conversation) {
  std::string text = conversation.system.empty() ? "" : "[" + conversation.system + "]";
  for (const Message& message : conversation.messages) {
    text += fmt::format("{}:{}|", name(message.role), message.content);
  }
  if (conversation.rejected) text += "not:" + conversation.rejected->content;
  return text;
}

constexpr const char* kShareGpt = "SharegptStyleInstructionHandler";
constexpr const char* kAlpaca = "AlpacaStyleInstructionHandler";
constexpr const char* kBelle = "BelleMultiTurnInstructionHandler";
constexpr const char* kMessages = "OpenAIInstructionHandler";

TEST(Handlers, AnUnknownNameIsAnErrorWithAllNames) {
  const std::string message =
      message_of(Fault::kUsage, [] { handler_named("GeneralInstructionHandlr"); });
  EXPECT_THAT(message, HasSubstr("did you mean GeneralInstructionHandler?"));
  for (const Handler& handler : handlers()) {
    EXPECT_THAT(message, HasSubstr(std::string(handler.name)));
  }
}

TEST(Handlers, AreFoundByTheKeysOfARecord) {
  const auto found = [](const char* record) {
    return std::string(handler_of(read_json<nlohmann::ordered_json>(record)).name);
  };
  EXPECT_EQ(found(R"({"instruction": "a", "input": null, "output": "b"})"), kAlpaca);
  EXPECT_EQ(found(R"({"conversations": []})"), kShareGpt);
  EXPECT_EQ(found(R"({"messages": [], "text": "x"})"), kMessages);
  EXPECT_EQ(found(R"({"conversations": [], "chosen": "a", "rejected": "b"})"),
            "SharegptStylePairwiseHandler");
  EXPECT_EQ(found(R"({"instruction": "", "chosen": "a", "rejected": "b"})"),
            "AlpacaStylePairwiseHandler");
  EXPECT_EQ(found(R"({"prompt": "x", "completion": "y"})"), "PromptCompletionHandler");
  EXPECT_EQ(found(R"({"prompt": "x", "completion": "y", "label": false})"),
            "PromptUnpairedHandler");
  EXPECT_EQ(found(R"({"chosen": [], "rejected": []})"), "PromptPairwiseHandler");
  EXPECT_EQ(found(R"({"text": "x"})"), "GeneralPretrainHandler");
  EXPECT_THAT(message_of(Fault::kData, [&] { found(R"({"question": "a", "answer": "b"})"); }),
              HasSubstr("the record has question, answer; wanted instruction and output"));
  EXPECT_THAT(message_of(Fault::kData,
                         [&] { found(R"({"instruction": "a", "input": "", "output": null})"); }),
              HasSubstr("output is null, and the format is recognized by the first record"));
  EXPECT_THAT(message_of(Fault::kData, [&] { found(R"({"chosen": "a", "rejected": null})"); }),
              HasSubstr("rejected is null"));
}

// As ultrafeedback_binarized has both.
TEST(Handlers, OfMessagesAndPairsAreChosenByWhatIsWanted) {
  const auto record = read_json<nlohmann::ordered_json>(
      R"({"prompt": "a", "messages": [], "chosen": [], "rejected": []})");
  EXPECT_EQ(handler_of(record).name, kMessages);
  EXPECT_EQ(handler_of(record, SampleForm::kAnswers).name, kMessages);
  EXPECT_EQ(handler_of(record, SampleForm::kPairs).name, "PromptPairwiseHandler");
}

TEST(Prompts, AreTextsOrMessages) {
  constexpr const char* kCompletion = "PromptCompletionHandler";
  constexpr const char* kPairwise = "PromptPairwiseHandler";
  EXPECT_EQ(shown(read(kCompletion, R"({"prompt": "a", "completion": "b"})")),
            "user:a|assistant:b|");
  EXPECT_EQ(shown(read(kCompletion, R"({"prompt": [{"role": "system", "content": "s"},
      {"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]})")),
            "[s]user:a|assistant:b|");
  EXPECT_EQ(shown(read(kPairwise, R"({"prompt": [{"role": "user", "content": "a"}],
      "chosen": "b", "rejected": [{"role": "assistant", "content": "c"}]})")),
            "user:a|assistant:b|not:c");
  // Whole conversations, with and without the prompt.
  constexpr const char* kWhole = R"("chosen": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b"}], "rejected": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "c"}]})";
  EXPECT_EQ(shown(read(kPairwise, (std::string("{") + kWhole).c_str())),
            "user:a|assistant:b|not:c");
  EXPECT_EQ(shown(read(kPairwise, (std::string(R"({"prompt": "a", )") + kWhole).c_str())),
            "user:a|assistant:b|not:c");
  EXPECT_EQ(read("PromptUnpairedHandler", R"({"prompt": "a", "completion": "b", "label": false})")
                .desirable,
            false);
  EXPECT_THAT(fault_of(kPairwise, R"({"chosen": "a", "rejected": "b"})"), HasSubstr("user"));
  EXPECT_THAT(fault_of(kPairwise, R"({"prompt": "a", "chosen": [], "rejected": "b"})"),
              HasSubstr("key \"chosen\" holds no message"));
  EXPECT_THAT(fault_of(kPairwise, R"({"prompt": "x", "chosen": "b", "rejected": [
      {"role": "user", "content": "y"}, {"role": "assistant", "content": "c"}]})"),
              HasSubstr("differ before their last message"));
}

TEST(Alpaca, JoinsThePartsThatAreNotEmpty) {
  EXPECT_EQ(shown(read(kAlpaca, R"({"instruction": "a", "input": "b", "output": "c"})")),
            "user:a\nb|assistant:c|");
  EXPECT_EQ(shown(read(kAlpaca, R"({"instruction": "a", "input": "", "output": "c"})")),
            "user:a|assistant:c|");
  EXPECT_EQ(shown(read(kAlpaca, R"({"instruction": "a", "input": null, "output": ["c"]})")),
            "user:a|assistant:c|");
  EXPECT_EQ(shown(read(kAlpaca, R"({"instruction": "", "input": "b", "output": "c"})")),
            "user:b|assistant:c|");
}

TEST(Alpaca, HistoryComesFirstAndKeysCanBeMapped) {
  EXPECT_EQ(shown(read(kAlpaca, R"({"q": "3", "a": "4", "history": [["1", "2"]], "who": "me"})",
                       R"({"prompt": "q", "response": "a", "system": "who"})")),
            "[me]user:1|assistant:2|user:3|assistant:4|");
}

TEST(Alpaca, SaysWhatIsWrongWithARecord) {
  EXPECT_EQ(fault_of(kAlpaca, R"({"instruction": "a", "answer": "c"})"),
            "no key \"output\"; it has instruction, answer");
  EXPECT_EQ(fault_of(kAlpaca, R"({"instruction": 3, "output": "c"})"),
            "key \"instruction\" holds a number, wanted text");
  EXPECT_EQ(fault_of(kAlpaca, R"({"instruction": null, "output": "c"})"),
            "key \"instruction\" holds the value null, wanted text");
  EXPECT_EQ(fault_of(kAlpaca, R"({"instruction": "a", "output": ["c", "d"]})"),
            "key \"output\" holds a list of 2, wanted one text");
  EXPECT_EQ(fault_of(kAlpaca, R"({"instruction": "a", "output": "c", "history": [["x"]]})"),
            "\"history\" holds a list of 1, wanted pairs of texts");
}

TEST(MapKeys, NamesThatDoNotExistAreErrors) {
  const auto fault = [](const std::string& map_keys) {
    return message_of(Fault::kUsage, [&] { fields_of(handler_named(kShareGpt), map_keys); });
  };
  EXPECT_THAT(fault(R"({"prompt": "x"})"),
              HasSubstr("no field \"prompt\"; there are messages, system, tools"));
  EXPECT_THAT(fault(R"({"tags": {"role": "x"}})"), HasSubstr("no tag \"role\"; there are"));
  EXPECT_THAT(fault(R"({"messages": 3})"), HasSubstr("\"messages\" is 3, wanted the name"));
  EXPECT_THAT(fault("[]"), HasSubstr("wanted a JSON object"));
}

// MindSpeed-LLM's way to say that the data have no such field.
TEST(MapKeys, AnEmptyNameMeansThatNoRecordHasTheField) {
  const char* record = R"({"question": "a", "input": "i", "": "x", "chosen": "c", "rejected": "r",
      "system": "s", "history": [["p", "q"]]})";
  EXPECT_EQ(shown(read("AlpacaStylePairwiseHandler", record,
                       R"({"prompt": "question", "query": "", "system": "system"})")),
            "[s]user:p|assistant:q|user:a|assistant:c|not:r");
  EXPECT_EQ(shown(read("AlpacaStylePairwiseHandler", record,
                       R"({"prompt": "question", "system": "", "history": "", "tools": ""})")),
            "user:a\ni|assistant:c|not:r");
  EXPECT_EQ(shown(read("PromptPairwiseHandler", R"({"": [{"role": "user", "content": "x"}],
      "chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}],
      "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "r"}]})",
                       R"({"prompt": ""})")),
            "user:a|assistant:c|not:r");
  const RecordFields fields = fields_of(handler_named(kAlpaca), R"({"query": "", "tools": ""})");
  EXPECT_THAT(fields.optional(), testing::UnorderedElementsAre("history", "system"));
  const auto fault = [](const std::string& handler, const std::string& map_keys) {
    return message_of(Fault::kUsage, [&] { fields_of(handler_named(handler), map_keys); });
  };
  EXPECT_EQ(fault(kAlpaca, R"({"prompt": ""})"),
            "--map-keys: \"prompt\" is \"\", wanted the name of a key, since every record has this "
            "field");
  EXPECT_EQ(fault(kShareGpt, R"({"tags": {"role_tag": ""}})"),
            "--map-keys: \"role_tag\" is \"\", wanted the name of a tag");
}

TEST(ShareGpt, ReadsSystemTagsAndTools) {
  EXPECT_EQ(shown(read(kShareGpt, R"({"conversations": [{"from": "system", "value": "s"},
      {"from": "human", "value": "a"}, {"from": "function_call", "value": "{}"},
      {"from": "observation", "value": "o"}, {"from": "gpt", "value": "b"}]})")),
            "[s]user:a|function:{}|observation:o|assistant:b|");
  EXPECT_EQ(shown(read(kShareGpt, R"({"talk": [{"r": "U", "c": "a"}, {"r": "A", "c": "b"}]})",
                       R"({"messages": "talk", "tags": {"role_tag": "r", "content_tag": "c",
                           "user_tag": "U", "assistant_tag": "A"}})")),
            "user:a|assistant:b|");
  // Words that many files have; not where the user gave others.
  const char* other = R"({"conversations": [{"from": "user", "value": "a"},
      {"from": "assistant", "value": "b"}]})";
  EXPECT_EQ(shown(read(kShareGpt, other)), "user:a|assistant:b|");
  EXPECT_THAT(fault_of(kShareGpt, other, R"({"tags": {"user_tag": "human"}})"),
              HasSubstr("a message is from \"user\", wanted human"));
  // A column of a table holds the list as a text.
  EXPECT_EQ(shown(read(kShareGpt, R"({"conversations":
      "[{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}]"})")),
            "user:a|assistant:b|");
}

TEST(ShareGpt, TurnsMustAlternate) {
  EXPECT_EQ(fault_of(kShareGpt, R"({"conversations": [{"from": "gpt", "value": "a"}]})"),
            "message 1 is of the assistant, wanted user or observation");
  EXPECT_EQ(fault_of(kShareGpt, R"({"conversations": [{"from": "human", "value": "a"}]})"),
            "the last of 1 messages is of the user; wanted an answer");
  EXPECT_EQ(fault_of(kShareGpt, R"({"conversations": [{"from": "system", "value": "a"}]})"),
            "the conversation has no messages");
  EXPECT_THAT(fault_of(kShareGpt, R"({"conversations": [3]})"), HasSubstr("wanted an object"));
  EXPECT_THAT(fault_of(kShareGpt, R"({"conversations": {}})"), HasSubstr("wanted a list"));
}

TEST(Messages, ReadPartsCallsAndResults) {
  EXPECT_EQ(shown(read(kMessages, R"({"messages": [{"role": "system", "content": "s"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",
        "arguments": "{}"}}, {"function": {"name": "g", "arguments": {"x": 1}}}]},
      {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"},
      {"role": "assistant", "content": "c", "reasoning_content": "t"}]})")),
            "[s]user:ab|function:[{\"name\":\"f\",\"arguments\":\"{}\"},{\"name\":\"g\","
            "\"arguments\":{\"x\":1}}]|observation:1\n</tool_response>\n<tool_response>\n2|"
            "assistant:<think>\nt\n</think>\n\nc|");
  EXPECT_THAT(fault_of(kMessages, R"({"messages": [{"role": "user", "content": [{"type":
      "image_url", "image_url": "x"}]}]})"),
              HasSubstr("a part that is not text"));
  EXPECT_THAT(fault_of(kMessages, R"({"messages": [{"role": "critic", "content": "x"}]})"),
              HasSubstr("the role \"critic\""));
}

TEST(Messages, HaveADeveloperInPlaceOfTheSystem) {
  EXPECT_EQ(shown(read(kMessages, R"({"messages": [{"role": "developer", "content": "d"},
      {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})")),
            "[d]user:a|assistant:b|");
  EXPECT_THAT(fault_of(kMessages, R"({"messages": [{"role": "user", "content": "a"},
      {"role": "developer", "content": "d"}]})"),
              HasSubstr("the role \"developer\""));
}

TEST(Messages, HaveATextBeforeCallsAndTheOlderNameOfACall) {
  const Conversation conversation = read(kMessages, R"({"messages": [
      {"role": "system", "content": ""}, {"role": "user", "content": "a"},
      {"role": "assistant", "content": "Wait.", "tool_calls": [{"function": {"name": "f",
        "arguments": "{}"}}]},
      {"role": "tool", "content": "1"},
      {"role": "assistant", "content": null,
       "function_call": {"name": "g", "arguments": "{}"}}]})");
  EXPECT_EQ(shown(conversation),
            "user:a|function:[{\"name\":\"f\",\"arguments\":\"{}\"}]|observation:1|"
            "function:[{\"name\":\"g\",\"arguments\":\"{}\"}]|");
  EXPECT_EQ(conversation.messages[1].said, "Wait.");
  EXPECT_EQ(conversation.messages[3].said, "");
  EXPECT_TRUE(conversation.has_system);
  EXPECT_THAT(fault_of(kMessages, R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "function_call": "f"}]})"),
              HasSubstr("\"function_call\" is a string, wanted calls of tools"));
}

TEST(Messages, AnswersOfWeight0AreNotTaught) {
  const auto taught = [](const char* handler, const char* record) {
    std::vector<bool> list;
    for (const Message& message : read(handler, record).messages) list.push_back(message.taught);
    return list;
  };
  const std::vector<bool> wanted = {true, false, true, false};
  EXPECT_EQ(taught("OpenAIInstructionHandler",
                   R"({"messages": [{"role": "user", "content": "a", "weight": 0},
                       {"role": "assistant", "weight": 0, "tool_calls": [{"name": "f"}]},
                       {"role": "tool", "content": "1"},
                       {"role": "assistant", "content": "b", "weight": 0}]})"),
            wanted);
  EXPECT_EQ(taught("SharegptStyleInstructionHandler",
                   R"({"conversations": [{"from": "human", "value": "a"},
                       {"from": "gpt", "value": "b", "weight": 0},
                       {"from": "human", "value": "c", "weight": 1},
                       {"from": "gpt", "value": "d", "weight": 0}]})"),
            wanted);
}

TEST(Belle, CutsTurnsAtTheirMarks) {
  EXPECT_EQ(shown(read(kBelle, R"({"instruction": "Human: a \nAssistant:　b\nHuman:c\nAssistant:",
                                   "output": " d "})")),
            "user:a|assistant:b|user:c|assistant:d|");
  // AscendSpeed drops a last question without the mark after it.
  EXPECT_EQ(shown(read(kBelle, R"({"instruction": "Human:a", "output": "d"})")),
            "user:a|assistant:d|");
  EXPECT_THAT(fault_of(kBelle, R"({"instruction": "a", "output": "d"})"),
              HasSubstr("begins with something other than \"Human:\""));
  EXPECT_THAT(fault_of(kBelle, R"({"instruction": "Human:a\nHuman:b\nAssistant:", "output": "d"})"),
              HasSubstr("turn 1 of \"instruction\" has no answer"));
  EXPECT_THAT(fault_of(kBelle, R"({"instruction": "Human:a\nAssistant:b", "output": "d"})"),
              HasSubstr("and so has \"output\""));
}

TEST(Moss, DropsTheMarksAndEmptyTurns) {
  EXPECT_EQ(shown(read("MOSSInstructionHandler", R"({"chat": {"turn_1": {"Human":
      "<|Human|>: a<eoh>\n", "MOSS": "<|MOSS|>: b<eom>\n"}, "turn_2": null}})")),
            "user:a|assistant:b|");
  EXPECT_THAT(fault_of("MOSSInstructionHandler", R"({"chat": [1]})"),
              HasSubstr("wanted an object of turns"));
  EXPECT_THAT(fault_of("MOSSInstructionHandler", R"({"chat": {"turn_1": {"Human": "a"}}})"),
              HasSubstr("no key \"MOSS\""));
}

TEST(Leetcode, TheQuestionEndsBeforeTheFirstFence) {
  EXPECT_EQ(shown(read("LeetcodePythonInstructionHandler", R"({"code_with_problem": " p \n```c```",
      "code_only": "c", "explanation_only": "e"})")),
            "user:p|assistant:c\ne|");
}

TEST(Pairs, HaveTwoAnswers) {
  EXPECT_EQ(shown(read("AlpacaStylePairwiseHandler",
                       R"({"instruction": "a", "chosen": "b", "rejected": "c"})")),
            "user:a|assistant:b|not:c");
  EXPECT_EQ(shown(read("SharegptStylePairwiseHandler",
                       R"({"conversations": [{"from": "human", "value": "a"}],
                           "chosen": {"from": "gpt", "value": "b"}, "rejected": "c"})")),
            "user:a|assistant:b|not:c");
}

TEST(Texts, AreMadeOfSeveralKeys) {
  const auto text = [](const char* handler_name, const char* record) {
    const Handler& handler = handler_named(handler_name);
    return read_text(handler, fields_of(handler, ""), read_json<nlohmann::ordered_json>(record));
  };
  EXPECT_EQ(text("StackOverflowPythonPretrainHandler",
                 R"({"title": "t", "question_body": "q", "answer_body": "a"})"),
            "In python, t\n### Question:\nq\n### Response:\na\n");
  const std::string with =
      text("AlpacaPretrainHandler", R"({"instruction": "i", "input": "n", "output": "o"})");
  EXPECT_THAT(with,
              HasSubstr("### Instruction:\ni\n\n### Input:\nn\n\n### Response: ASSISTANT: o"));
  const std::string without =
      text("AlpacaPretrainHandler", R"({"instruction": "i", "input": "", "output": "o"})");
  EXPECT_THAT(without, HasSubstr("### Instruction:\ni\n\n### Response: ASSISTANT: o"));
  EXPECT_EQ(without.find("None"), without.npos);
}

}  // namespace
}  // namespace piton
