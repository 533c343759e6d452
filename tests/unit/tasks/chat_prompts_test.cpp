// Prompts under a chat template are those of lm-evaluation-harness, to the byte:
// tests/golden/evaluation/chat.jsonl, made by tools/oracle/evaluation_chat.py.
#include "tasks/chat_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/files/files.h"
#include "base/json.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "tasks/task_table.h"
#include "unit/tasks/golden_folder.h"

namespace piton {
namespace {

using test::kGolden;

ChatTemplate template_of(const std::string& source) {
  return ChatTemplate(source, {{"bos_token", "<s>"}}, "a template");
}

TEST(ChatPrompts, AreThoseOfLmEvaluationHarness) {
  std::istringstream lines(read_text_file(kGolden / "chat.jsonl"));
  std::string line;
  std::getline(lines, line);
  const auto templates = read_json<nlohmann::json>(line);
  std::size_t compared = 0;
  while (std::getline(lines, line)) {
    const auto golden = read_json<nlohmann::json>(line);
    SCOPED_TRACE(golden["task"].dump() + golden["subject"].dump() + golden["template"].dump() +
                 golden["multiturn"].dump());
    TaskData data =
        load_task(find_task(golden["task"], {}),
                  {.paths = {(kGolden / "data").string()}, .num_shots = golden["num_shots"]});
    const std::string before = data.prompt_hash;
    make_chat_prompts(data, template_of(templates[golden["template"].get<std::string>()]),
                      {.multiturn = golden["multiturn"]});
    EXPECT_NE(data.prompt_hash, before);
    EXPECT_TRUE(data.is_chat);
    std::size_t next = 0;
    for (const TaskSample& sample : data.samples) {
      if (sample.subject != golden["subject"].get<std::string>()) continue;
      const auto& wanted = golden["samples"].at(next++);
      EXPECT_EQ(sample.contexts, wanted["contexts"].get<std::vector<std::string>>());
      EXPECT_EQ(sample.continuations, wanted["continuations"].get<std::vector<std::string>>());
      ++compared;
    }
    EXPECT_EQ(next, golden["samples"].size());
  }
  EXPECT_GE(compared, 100U);
}

TEST(InstructionTemplate, HasThePromptInsteadOfItsWord) {
  TaskData data = load_task(find_task("boolq", {}), {.paths = {(kGolden / "data").string()}});
  const std::string plain = data.samples[0].contexts[0];
  const std::string before = data.prompt_hash;
  put_prompts_into("<{instruction}>\n", data);
  EXPECT_EQ(data.samples[0].contexts[0], "<" + plain + ">\n");
  EXPECT_NE(data.prompt_hash, before);
  EXPECT_EQ(message_of(Fault::kUsage, [&] { put_prompts_into("{question}", data); }),
            "--instruction-template: got \"{question}\", wanted a text with {instruction}");
  // The text has the answer.
  TaskData last = load_task(find_task("lambada", {.protocol = Protocol::kMindSpeed}),
                            {.paths = {(kGolden / "data").string()}});
  const std::string text = last.samples[0].contexts[0];
  put_prompts_into("<{instruction}>", last);
  EXPECT_EQ(last.samples[0].contexts[0], text);
}

TEST(ChatPrompts, OfAWrittenTextOfExamplesAreOneTurn) {
  TaskData data = load_task(find_task("bbh", {}), {.paths = {(kGolden / "data").string()}});
  EXPECT_EQ(message_of(Fault::kUsage,
                       [&] {
                         make_chat_prompts(data, template_of("{{ messages[0].content }}"),
                                           {.multiturn = true});
                       }),
            "--fewshot-as-multiturn: the examples of bbh are one written text; leave it out");
}

TEST(ChatPrompts, OfTextsWhosePerplexityIsMeasuredAreTheTexts) {
  TaskData data = load_task(find_task("wikitext", {}), {.paths = {(kGolden / "data").string()}});
  const std::string before = data.prompt_hash;
  make_chat_prompts(data, template_of("{{ messages[0].content }}"), {});
  EXPECT_EQ(data.prompt_hash, before);
  EXPECT_FALSE(data.is_chat);
}

TEST(ChatPrompts, OfPreferencesAreAConversationForEachAnswer) {
  TaskData data;
  data.task = {.kind = TaskKind::kPreference};
  data.samples = {{.choices = {"a", "b"}, .system = "Be kind.", .asked = {"q"}}};
  const ChatTemplate all = template_of(
      "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
      "{% if add_generation_prompt %}a:{% endif %}");
  make_chat_prompts(data, all, {});
  EXPECT_FALSE(data.is_chat);
  make_preference_texts(data, all);
  EXPECT_THAT(data.samples[0].contexts,
              testing::ElementsAre("<s>s:Be kind.;u:q;a:a;", "<s>s:Be kind.;u:q;a:b;"));
  EXPECT_TRUE(data.is_chat);
  EXPECT_EQ(data.prompt_hash, hash_of_prompts(data.samples));
}

TaskData pairs_in(const TempFolder& folder, const std::string& lines) {
  write_text_file(folder / "pairs.jsonl", lines + "\n");
  return load_task(find_task("rewardbench", {}), {.paths = {(folder / "pairs.jsonl").string()}});
}

// tests/golden/instruct/pairs_messages.jsonl, made by tools/oracle/preference_messages.py.
TEST(ChatPrompts, OfPairsOfMessagesAreThoseOfTransformers) {
  const std::string golden = std::string(PITON_SOURCE_DIR) + "/tests/golden/";
  std::istringstream lines(read_text_file(golden + "instruct/pairs_messages.jsonl"));
  std::string line;
  std::getline(lines, line);  // the origin
  int compared = 0;
  while (std::getline(lines, line)) {
    SCOPED_TRACE(line);
    const auto one = read_json<nlohmann::json>(line);
    const TempFolder folder;
    TaskData data = pairs_in(folder, one["record"].dump());
    const std::string source =
        read_text_file(golden + "chat/templates/" + one["template"].get<std::string>() + ".jinja");
    make_preference_texts(data,
                          ChatTemplate(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, "t"));
    EXPECT_THAT(data.samples.at(0).contexts,
                testing::ElementsAre(one["chosen"]["text"], one["rejected"]["text"]));
    ++compared;
  }
  EXPECT_EQ(compared, 24);
}

TEST(ChatPrompts, OfPairsOfMessagesHaveTheDescriptionUnlessTheyHaveASystemMessage) {
  const TempFolder folder;
  const std::string asks = R"({"role": "user", "content": "q"}, {"role": "assistant", "content": )";
  TaskData data =
      pairs_in(folder, R"({"chosen": [)" + asks + R"("a"}], "rejected": [)" + asks + R"("b"}]})");
  data.samples[0].system = "Be kind.";
  const ChatTemplate all =
      template_of("{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}");
  make_preference_texts(data, all);
  EXPECT_THAT(data.samples[0].contexts,
              testing::ElementsAre("s:Be kind.;u:q;a:a;", "s:Be kind.;u:q;a:b;"));
  EXPECT_THAT(data.samples[0].choices, testing::ElementsAre("a", "b"));
  EXPECT_THAT(data.samples[0].asked, testing::ElementsAre("q"));
  data.samples[0].pair->system = "Be brief.";
  make_preference_texts(data, all);
  EXPECT_EQ(data.samples[0].contexts[0], "s:Be brief.;u:q;a:a;");
}

TEST(ChatPrompts, OfPairsOfMessagesThatAreNoPairsAreRefused) {
  const TempFolder folder;
  const auto error = [&](const std::string& line) {
    return message_of(Fault::kData, [&] { pairs_in(folder, line); });
  };
  constexpr const char* kAnswer = R"([{"role": "assistant", "content": "a"}])";
  const auto pair = [&](const std::string& prompt, const std::string& chosen,
                        const std::string& rejected) {
    return error(R"({"prompt": )" + prompt + R"(, "chosen": )" + chosen + R"(, "rejected": )" +
                 rejected + "}");
  };
  const std::string asks = R"([{"role": "user", "content": "q"}])";
  EXPECT_THAT(pair(asks, kAnswer, kAnswer),
              testing::HasSubstr("pairs.jsonl: record 1: chosen and rejected are equal"));
  EXPECT_THAT(pair(asks, "[]", kAnswer), testing::HasSubstr("key \"chosen\" holds no message"));
  EXPECT_THAT(pair(asks, asks, kAnswer), testing::HasSubstr("differ before their last message"));
  EXPECT_THAT(pair(asks, R"([{"role": "user", "content": "r"}, {"role": "assistant"}])", kAnswer),
              testing::HasSubstr("differ before their last message"));
  EXPECT_THAT(pair(kAnswer, kAnswer, "\"b\""), testing::HasSubstr("message 1 is of the assistant"));
  EXPECT_THAT(pair(asks, R"([{"role": "assistant", "content": "", "tool_calls": []}])", kAnswer),
              testing::HasSubstr("record 1: a message of \"chosen\" has tool_calls; piton score"));
  EXPECT_THAT(pair(asks, R"(["a"])", kAnswer),
              testing::HasSubstr("message 1 of \"chosen\" is string, wanted an object"));
}

TEST(ChatPrompts, AreRefusedAsTheTemplateRefusesThem) {
  TaskData data = load_task(find_task("boolq", {}), {.paths = {(kGolden / "data").string()}});
  EXPECT_THAT(
      message_of(
          Fault::kData,
          [&] { make_chat_prompts(data, template_of("{{ raise_exception('not this') }}"), {}); }),
      testing::HasSubstr("not this"));
}

}  // namespace
}  // namespace piton
