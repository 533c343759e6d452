#include "data/instruct/model_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/files/files.h"
#include "base/json.h"
#include "data/instruct/handlers.h"
#include "data/instruct/named_prompt.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "talks.h"
#include "text/files/byte_tokenizer.h"
#include "text/files/tokenizer_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ModelPromptTest : public testing::Test {
 protected:
  ModelPromptTest() {
    write_text_file(folder_ / "chat_template.jinja",
                    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}"
                    "{% for c in m.tool_calls or [] %}{{ c.function.name }}"
                    "({{ c.function.arguments.x }}){% endfor %};{% endfor %}"
                    "{% if add_generation_prompt %}a:{% endif %}");
  }

  ModelPrompt prompt(ModelPromptRules rules = {}) const {
    return {chat_templates_in(folder_.path()), tokenizer_, rules};
  }

  TempFolder folder_;
  ByteTokenizer tokenizer_;
};

TEST_F(ModelPromptTest, LearnsWhatTheTemplateWritesForTheAssistant) {
  Conversation conversation = talk({"b", "cd", "e", "f"});
  conversation.system = "x";
  const auto samples = prompt({.append_eod = true}).encode(conversation);
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(byte_text(samples[0].ids), "s:x;u:b;a:cd;u:e;a:f;$");
  EXPECT_EQ(byte_text(samples[0].labels), "__________cd;______f;$");
}

TEST_F(ModelPromptTest, TellsTheTemplateToThink) {
  write_text_file(folder_ / "chat_template.jinja",
                  "{% if enable_thinking is defined %}{{ enable_thinking }};{% endif %}"
                  "{% for m in messages %}{{ m.content }};{% endfor %}");
  const Conversation conversation = talk({"b", "c"});
  const auto ids = [&](Thinking thinking) {
    return byte_text(prompt({.thinking = thinking}).encode(conversation)[0].ids);
  };
  EXPECT_EQ(ids(Thinking::kKept), "True;b;c;");
  EXPECT_EQ(ids(Thinking::kRemoved), "False;b;c;");
  EXPECT_EQ(byte_text(prompt().encode(conversation)[0].ids), "b;c;");
}

TEST_F(ModelPromptTest, AnswersThatAreNotTaughtHaveNoLabels) {
  Conversation conversation = talk({"b", "cd", "e", "f"});
  conversation.system = "x";
  conversation.messages[1].taught = false;
  EXPECT_EQ(byte_text(prompt({.append_eod = true}).encode(conversation)[0].labels),
            "___________________f;$");
  conversation.messages[3].taught = false;
  const TaughtText none = prompt({.append_eod = true}).encode(conversation)[0];
  EXPECT_EQ(byte_text(none.ids), "s:x;u:b;a:cd;u:e;a:f;$");
  EXPECT_EQ(taught_tokens(none), 0);
  EXPECT_EQ(taught_tokens({}), 0);
  conversation.desirable = true;
  EXPECT_THAT(message_of(Fault::kData, [&] { check_turns(conversation); }),
              HasSubstr("the judged answer has \"weight\" 0"));
  conversation.rejected = Message{MessageRole::kAssistant, "no"};
  EXPECT_THAT(message_of(Fault::kData, [&] { check_turns(conversation); }),
              HasSubstr("the chosen answer has \"weight\" 0"));
}

TEST_F(ModelPromptTest, GivesCallsAndResultsOfTools) {
  Conversation conversation = talk({"b"});
  conversation.messages.push_back(
      {MessageRole::kFunction, R"({"name": "f", "arguments": {"x": 3}})"});
  conversation.messages.push_back(
      {MessageRole::kObservation, "4\n</tool_response>\n<tool_response>\n5"});
  conversation.messages.push_back({MessageRole::kAssistant, "g"});
  EXPECT_EQ(byte_text(prompt().encode(conversation)[0].ids), "u:b;a:f(3);t:4;t:5;a:g;");
}

// The sample of a record of messages.
TaughtText sample_of(const ModelPrompt& prompt, const char* record) {
  const auto json = read_json<nlohmann::ordered_json>(record);
  const Handler& handler = handler_of(json);
  return prompt.encode(read_conversation(handler, fields_of(handler, ""), json)).at(0);
}

TEST_F(ModelPromptTest, GivesReasoningInItsField) {
  write_text_file(folder_ / "chat_template.jinja",
                  "{% for m in messages %}{{ m.role[0] }}:"
                  "{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}"
                  "{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}");
  for (const char* record : {R"({"messages": [{"role": "user", "content": "b"},
                                 {"role": "assistant", "content": "c", "thinking": "t"}]})",
                             R"({"messages": [{"role": "user", "content": "b"},
                                 {"role": "assistant", "content": "c", "reasoning": "t"}]})",
                             R"({"prompt": [{"role": "user", "content": "b"}], "completion": [
                                 {"role": "assistant", "content": "c",
                                  "reasoning_content": "t"}]})"}) {
    const TaughtText sample = sample_of(prompt(), record);
    EXPECT_EQ(byte_text(sample.ids), "u:b;a:[t]c;");
    EXPECT_EQ(byte_text(sample.labels), "______[t]c;");
  }
}

TEST_F(ModelPromptTest, GivesIdsAndNamesOfCallsAndResults) {
  write_text_file(folder_ / "chat_template.jinja",
                  "{% for m in messages %}{{ m.role[0] }}:{{ m.name }}{{ m.tool_call_id }}"
                  "{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}"
                  "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}"
                  "({{ c.function.arguments.x }}){% endfor %};{% endfor %}"
                  "{% if add_generation_prompt %}a:{% endif %}");
  const TaughtText sample = sample_of(prompt(), R"({"messages": [
      {"role": "user", "name": "N", "content": [{"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "thinking": "t", "tool_calls": [
          {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 3}"}},
          {"id": "2", "name": "g", "arguments": {"x": 4}}]},
      {"role": "tool", "tool_call_id": "1", "name": "f", "content": "5"},
      {"role": "tool", "tool_call_id": "2", "name": "g", "content": "6"},
      {"role": "assistant", "content": "c"}]})");
  EXPECT_EQ(byte_text(sample.ids), "u:Nb;a:[t]1f(3)2g(4);t:f15;t:g26;a:c;");
  EXPECT_EQ(byte_text(sample.labels), "_______[t]1f(3)2g(4);______________c;");
}

TEST_F(ModelPromptTest, ToolsThatTheTemplateLeavesOutAreRefused) {
  const char* calls = R"({"messages": [{"role": "user", "content": "b"},
      {"role": "assistant", "content": null, "tool_calls": [
          {"type": "function", "function": {"name": "f", "arguments": {"x": 3}}}]}]})";
  const char* tools = R"({"messages": [{"role": "user", "content": "b"},
      {"role": "assistant", "content": "c"}], "tools": [{"name": "f"}]})";
  EXPECT_EQ(byte_text(sample_of(prompt(), calls).ids), "u:b;a:f(3);");
  EXPECT_THAT(message_of(Fault::kData, [&] { sample_of(prompt(), tools); }),
              HasSubstr("chat_template.jinja: this template cannot write tools, which the record "
                        "has; name one that can with --prompt-type, or leave the tools out"));
  write_text_file(folder_ / "chat_template.jinja",
                  "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
                  "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
                  "{% if add_generation_prompt %}a:{% endif %}");
  EXPECT_EQ(byte_text(sample_of(prompt(), tools).ids), "fu:b;a:c;");
  EXPECT_THAT(message_of(Fault::kData, [&] { sample_of(prompt(), calls); }),
              HasSubstr("this template cannot write tool calls, which the record has"));
}

TEST_F(ModelPromptTest, GivesAnEmptyContentToTemplatesThatWantOne) {
  write_text_file(folder_ / "chat_template.jinja",
                  "{% for m in messages %}{{ m.role[0] + ':' + m.content }}"
                  "{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}{% endfor %};"
                  "{% endfor %}{% if add_generation_prompt %}a:{% endif %}");
  const TaughtText sample = sample_of(prompt(), R"({"messages": [{"role": "user", "content": "b"},
      {"role": "assistant", "content": null, "tool_calls": [
          {"id": "1", "function": {"name": "f", "arguments": "{}"}}]}]})");
  EXPECT_EQ(byte_text(sample.labels), "______1f;");
}

TEST_F(ModelPromptTest, AnswersOfAPairMayDifferInTheirReasoning) {
  const auto record = read_json<nlohmann::ordered_json>(R"({
      "prompt": [{"role": "user", "content": "b", "id": 1}],
      "chosen": [{"role": "assistant", "content": "c", "thinking": "t", "id": 2}],
      "rejected": [{"role": "assistant", "content": "c", "thinking": "u", "id": 3}]})");
  const Handler& handler = handler_of(record);
  const RecordFields fields = fields_of(handler, "");
  EXPECT_EQ(read_conversation(handler, fields, record).rejected->given[0]["thinking"], "u");
  auto equal = record;
  equal["rejected"][0]["thinking"] = "t";
  EXPECT_THAT(message_of(Fault::kData, [&] { read_conversation(handler, fields, equal); }),
              HasSubstr("chosen and rejected are equal"));
}

TEST_F(ModelPromptTest, GivesATextBeforeCallsAndAnEmptySystem) {
  Conversation conversation = talk({"b"});
  conversation.has_system = true;
  conversation.messages.push_back(
      {MessageRole::kFunction, R"({"name": "f", "arguments": {"x": 3}})", true, "Wait. "});
  const TaughtText sample = prompt().encode(conversation)[0];
  EXPECT_EQ(byte_text(sample.ids), "s:;u:b;a:Wait. f(3);");
  EXPECT_EQ(byte_text(sample.labels), "_________Wait. f(3);");
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           const NamedPrompt named(prompt_template("default", ""), tokenizer_, {});
                           named.encode(conversation);
                         }),
              HasSubstr("the template default cannot write a text before a tool call"));
}

TEST_F(ModelPromptTest, OfPairsTheLastAnswerIsLearned) {
  Conversation conversation = talk({"b", "c", "d", "e"});
  conversation.rejected = Message{MessageRole::kAssistant, "no"};
  const auto samples = prompt().encode(conversation);
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(byte_text(samples[0].labels), "______________e;");
  EXPECT_EQ(byte_text(samples[1].ids), "u:b;a:c;u:d;a:no;");
  EXPECT_EQ(byte_text(samples[1].labels), "______________no;");
}

TEST_F(ModelPromptTest, CutsTurns) {
  EXPECT_EQ(byte_text(prompt({.lengths = {10}}).encode(talk({"0123456789", "ab"}))[0].ids),
            "u:01234ab;");
}

TEST_F(ModelPromptTest, APairIsCutAsOne) {
  Conversation conversation = talk({"0123456789", "abcdefghijkl"});
  conversation.rejected = Message{MessageRole::kAssistant, "xy"};
  const auto samples = prompt({.lengths = {14}}).encode(conversation);
  ASSERT_EQ(samples.size(), 2U);
  // The question has 15 bytes ("u:0123456789;a:"), the longer answer 13.
  EXPECT_EQ(byte_text(samples[0].ids), "u:012345abcdef");
  EXPECT_EQ(byte_text(samples[1].ids), "u:012345xy;");
}

TEST_F(ModelPromptTest, DifferencesFromItAreShown) {
  const Conversation conversation = talk({"b", "c"});
  TaughtText sample = prompt().encode(conversation)[0];
  EXPECT_EQ(
      difference_from_model(chat_templates_in(folder_.path()), tokenizer_, conversation, sample),
      "");
  sample.ids[4] = 'A';
  EXPECT_THAT(
      difference_from_model(chat_templates_in(folder_.path()), tokenizer_, conversation, sample),
      HasSubstr("token 4 begins \"A:c;\" here, and \"a:c;\" there"));
  sample.ids.resize(4);
  EXPECT_THAT(
      difference_from_model(chat_templates_in(folder_.path()), tokenizer_, conversation, sample),
      HasSubstr("token 4 begins the end here"));
  EXPECT_EQ(difference_from_model({}, tokenizer_, conversation, sample), "");
}

// tests/golden/instruct/pairs_messages.jsonl, made by tools/oracle/preference_messages.py.
TEST(ModelPrompt, PairsOfMessagesAreThoseOfTransformers) {
  const fs::path golden = fs::path(PITON_SOURCE_DIR) / "tests/golden";
  const auto tokenizer = open_tokenizer_folder(golden / "chat/bpe", false);
  std::istringstream lines(read_text_file(golden / "instruct/pairs_messages.jsonl"));
  std::string line;
  std::getline(lines, line);  // the origin
  int compared = 0;
  while (std::getline(lines, line)) {
    SCOPED_TRACE(line);
    const auto one = read_json<nlohmann::ordered_json>(line);
    const TempFolder folder;
    const std::string name = one["template"];
    write_text_file(folder / "chat_template.jinja",
                    read_text_file(golden / "chat/templates" / (name + ".jinja")));
    write_text_file(folder / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>",
                    "unk_token": "<unk>", "pad_token": "<pad>"})");
    const ModelPrompt prompt(chat_templates_in(folder.path()), *tokenizer, {});
    const Handler& handler = handler_of(one["record"]);
    const auto samples =
        prompt.encode(read_conversation(handler, fields_of(handler, ""), one["record"]));
    ASSERT_EQ(samples.size(), 2U);
    for (int i = 0; i < 2; ++i) {
      const auto& wanted = one[i == 0 ? "chosen" : "rejected"];
      EXPECT_EQ(samples[i].ids, wanted["ids"].get<std::vector<std::int32_t>>());
      std::string mask;
      for (const std::int32_t label : samples[i].labels) mask += label == kIgnoredLabel ? '0' : '1';
      EXPECT_EQ(mask, wanted["mask"].get<std::string>());
    }
    ++compared;
  }
  EXPECT_EQ(compared, 24);
}

TEST(ModelPrompt, AFolderWithoutTemplatesIsRefused) {
  const TempFolder folder;
  const ByteTokenizer tokenizer;
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] { ModelPrompt(chat_templates_in(folder.path()), tokenizer, {}); }),
              HasSubstr("has no chat template; name one with --prompt-type"));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { ModelPrompt({}, tokenizer, {}); }),
              HasSubstr("the tokenizer has no chat template"));
}

}  // namespace
}  // namespace piton
